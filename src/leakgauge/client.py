"""ONE client: ``(params, buffers, inputs, labels, recipe, drawn) → update``, pure and differentiable.

Victim, adversary, doctor and gate all call :func:`update_of`, with the same loss object. It never mutates
the user's model, buffers, gradients or train flag; :class:`leakgauge.task.Task` hands it a private copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.losses import CrossEntropy
from leakgauge.threat import LABELS as LABELS
from leakgauge.threat import LEARNING_RATE as LEARNING_RATE
from leakgauge.threat import RECIPE as RECIPE
from leakgauge.types import Loss, Nuisance, Tree
from leakgauge.updates import trees

DROPOUT = "recipe.dropout"
ORDER = "recipe.order"
BATCH_STATISTICS = "recipe.batch_statistics"
"""The other addresses of what the recipe itself leaves open."""


@dataclass(frozen=True)
class Recipe:
    """How a client trains.

    ``shares="gradient"`` sends the gradient of one batch; ``"change"`` sends ``θ_after − θ_before`` after
    ``local_steps`` steps of SGD (momentum, weight decay) or Adam over consecutive slices of ``minibatch`` examples;
    ``shuffle`` draws a new order of the examples for every pass over them, which is then hidden unless granted.
    ``batch`` is the number of examples behind one update. With ``clients`` above 1 that update is the mean of so many
    clients' own, each of ``batch / clients`` examples: what a secure sum lets out. An update stage acts on the mean.
    ``shares_buffers``: the running statistics of batch norms leave the client with its update, as they do where whole
    states are sent.
    """

    batch: int = 1
    mode: Literal["train", "eval"] = "eval"
    loss: Loss = field(default_factory=CrossEntropy)
    reduction: Literal["mean", "sum"] = "mean"
    shares: Literal["gradient", "change"] = "gradient"
    local_steps: int = 1
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    minibatch: int | None = None
    optimiser: Literal["sgd", "adam"] = "sgd"
    shuffle: bool = False
    clients: int = 1
    shares_buffers: bool = False

    def __post_init__(self) -> None:
        with guards.together():
            for name in ("batch", "local_steps", "clients"):
                guards.count(getattr(self, name), name, "recipe")
            choices = {
                "mode": ("train", "eval"),
                "reduction": ("mean", "sum"),
                "shares": ("gradient", "change"),
                "optimiser": ("sgd", "adam"),
            }
            for name, allowed in choices.items():
                guards.choice(getattr(self, name), name, "recipe", allowed)
            guards.positive(self.learning_rate, "learning_rate", "recipe")
            guards.inside(self.momentum, "momentum", "recipe", 0.0, 1.0, closed_low=True)
            guards.non_negative(self.weight_decay, "weight_decay", "recipe")
        self._check_fit()

    def _check_fit(self) -> None:
        """Numbers that are fine one by one, and do not go together."""
        if self.batch % self.clients:
            raise DomainError(
                f"{self.batch} examples are not shared equally by {self.clients} clients",
                where="recipe",
                remedy=f"say batch={-(-self.batch // self.clients) * self.clients}",
            )
        if self.minibatch is not None and not 1 <= self.minibatch <= self.own_batch:
            raise DomainError(
                f"minibatch must lie in 1..{self.own_batch} (batch), got {self.minibatch}",
                where="recipe",
                remedy=f"say at most {self.own_batch}",
            )
        if self.shares == "gradient" and self.local_steps > 1:
            raise DomainError(
                f"{self.local_steps} local steps have no single gradient",
                where="recipe",
                remedy='say shares="change"',
            )
        if self.shares == "gradient" and self.optimiser == "adam":
            raise DomainError("Adam takes steps, it shares no gradient", where="recipe", remedy='say shares="change"')

    @property
    def own_batch(self) -> int:
        """The examples of one client."""
        return self.batch // self.clients

    @property
    def examples(self) -> int:
        """The examples of one local step."""
        return self.minibatch or self.own_batch

    @property
    def total_steps(self) -> int:
        """The local steps of all clients behind one update."""
        return self.clients * self.local_steps

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:
        """What is not the record: its label, and rate and order where the update depends on them."""
        labels = Nuisance("labels", per="example")
        if self.shares == "gradient":
            return (labels,)
        rate = Nuisance("learning_rate", per="update")
        return (labels, rate, Nuisance("order", per="step")) if self.shuffle else (labels, rate)

    def draw_order(self, size: int, *, generator: torch.Generator) -> Tensor:
        """The examples of every local step ``[total steps, minibatch]``: each pass of a client in a new order."""
        own, steps = size // self.clients, self.local_steps
        width = min(self.minibatch or own, own)
        passes = -(-steps // (own // width))
        orders = [
            torch.cat([torch.randperm(own, generator=generator)[: own // width * width] for _ in range(passes)])
            for _ in range(self.clients)
        ]
        return torch.stack([order.view(-1, width)[:steps] for order in orders]).flatten(0, 1)

    def reduce(self, losses: Tensor) -> Tensor:
        """Per-example losses ``[…, B]`` to the loss of a batch, ``[…]``."""
        return losses.mean(-1) if self.reduction == "mean" else losses.sum(-1)


@dataclass(frozen=True)
class Drawn:
    """What a client drew for one update: the rate of every local step ``[steps]`` (None: the recipe's own), random
    numbers of the model by the name of the buffer that takes them, ``[B, …]``, or ``[B, steps, …]`` where every local
    step draws its own, and the examples of every step ``[steps, minibatch]`` (None: consecutive ones). ``statistics``
    ``[steps, C]``, by buffer, are what batch norms use in place of those of the batch; the batch's own where empty. Of
    several clients, rates, orders and statistics follow each other."""

    rates: Tensor | None = None
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    order: Tensor | None = None
    statistics: Mapping[str, Tensor] = field(default_factory=dict)

    def at(self, step: int, batch: slice | Tensor, steps: int) -> dict[str, Tensor]:
        """The buffers of one local step."""
        own = {name: value[batch] if steps == 1 else value[batch][:, step] for name, value in self.buffers.items()}
        return {**own, **{name: value[step] for name, value in self.statistics.items()}}

    def of_client(self, k: int, recipe: Recipe) -> Drawn:
        """What client k of several drew."""
        steps = slice(k * recipe.local_steps, (k + 1) * recipe.local_steps)
        rows = slice(k * recipe.own_batch, (k + 1) * recipe.own_batch)
        return Drawn(
            None if self.rates is None else self.rates[steps],
            {name: value[rows] for name, value in self.buffers.items()},
            None if self.order is None else self.order[steps],
            {name: value[steps] for name, value in self.statistics.items()},
        )


def gradient_of(
    model: nn.Module,
    params: Tree,
    buffers: Tree,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
) -> dict[str, Tensor]:
    """``∇_θ ℓ(h_θ(x), y)`` of one batch, differentiable in every argument."""

    def loss(theta: dict[str, Tensor]) -> Tensor:
        outputs = functional_call(model, (theta, dict(buffers)), (inputs,))
        return recipe.reduce(recipe.loss(outputs, labels))

    gradient: dict[str, Tensor] = grad(loss)(dict(params))
    return gradient


Look = Callable[[Tree, Tree, Tensor], None]
"""Is shown parameters, buffers and inputs of every local step, before it is made."""


def update_of(
    model: nn.Module,
    params: Tree,
    buffers: Tree,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    drawn: Drawn | None = None,
    look: Look | None = None,
) -> dict[str, Tensor]:
    """What a client computes from a batch: its gradient, or its weight change after local training.

    A perturbed rate scales a shared gradient as it would scale the step: by its ratio to the recipe's rate. Of several
    clients, the mean of what each computes from its own share of the batch. ``look`` sees every local step.
    """
    drawn = drawn or Drawn()
    if recipe.clients > 1:
        return _mean_of_clients(model, params, buffers, inputs, labels, recipe, drawn, look)
    rates, steps = drawn.rates, recipe.local_steps
    if recipe.shares == "gradient":
        used = {**buffers, **drawn.at(0, slice(None), 1)}
        if look is not None:
            look(params, used, inputs)
        gradient = gradient_of(model, params, used, inputs, labels, recipe)
        return gradient if rates is None else trees.mapped(lambda g: rates[0] / recipe.learning_rate * g, gradient)
    theta, stepping = dict(params), _OPTIMISERS[recipe.optimiser](params, recipe)
    for step, batch in enumerate(_slices(recipe, len(inputs), drawn.order)):
        rate = recipe.learning_rate if rates is None else rates[step]
        used = {**buffers, **drawn.at(step, batch, steps)}
        if look is not None:
            look(theta, used, inputs[batch])
        slope = gradient_of(model, theta, used, inputs[batch], labels[batch], recipe)
        if recipe.weight_decay:
            slope = trees.mapped(lambda g, p: g + recipe.weight_decay * p, slope, theta)
        theta = trees.mapped(lambda p, d, rate=rate: p - rate * d, theta, stepping(slope))
    return trees.mapped(torch.sub, theta, params)


def _mean_of_clients(
    model: nn.Module,
    params: Tree,
    buffers: Tree,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    drawn: Drawn,
    look: Look | None,
) -> dict[str, Tensor]:
    alone = replace(recipe, clients=1, batch=recipe.own_batch)
    shares = zip(inputs.split(recipe.own_batch), labels.split(recipe.own_batch), strict=True)
    updates = [
        update_of(model, params, buffers, own, theirs, alone, drawn.of_client(k, recipe), look)
        for k, (own, theirs) in enumerate(shares)
    ]
    return trees.mapped(lambda *each: torch.stack(each).mean(0), *updates)


Stepping = Callable[[Tree], dict[str, Tensor]]
"""From the slope of a step to the direction that the rate multiplies."""


def _momentum(params: Tree, recipe: Recipe) -> Stepping:
    """``v ← μ v + g``."""
    if not recipe.momentum:
        return dict
    velocity = {name: torch.zeros_like(p) for name, p in params.items()}

    def step(slope: Tree) -> dict[str, Tensor]:
        velocity.update(trees.mapped(lambda v, g: recipe.momentum * v + g, velocity, slope))
        return dict(velocity)

    return step


def _adam(params: Tree, recipe: Recipe) -> Stepping:
    """``m̂ / (√v̂ + 1e-8)`` with β = (0.9, 0.999); a root of exactly 0 has no slope, and gets none."""
    first = {name: torch.zeros_like(p) for name, p in params.items()}
    second, count = dict(first), 0

    def step(slope: Tree) -> dict[str, Tensor]:
        nonlocal count
        count += 1
        first.update(trees.mapped(lambda m, g: 0.9 * m + 0.1 * g, first, slope))
        second.update(trees.mapped(lambda v, g: 0.999 * v + 0.001 * g.square(), second, slope))
        one, other = 1 - 0.9**count, 1 - 0.999**count
        return trees.mapped(
            lambda m, v: m / one / ((v / other).clamp(min=torch.finfo(v.dtype).tiny).sqrt() + 1e-8), first, second
        )

    return step


_OPTIMISERS: dict[str, Callable[[Tree, Recipe], Stepping]] = {"sgd": _momentum, "adam": _adam}


def _slices(recipe: Recipe, size: int, order: Tensor | None) -> Iterator[slice | Tensor]:
    width = recipe.minibatch or size
    starts = range(0, size - width + 1, width)
    for step in range(recipe.local_steps):
        start = starts[step % len(starts)]
        yield slice(start, start + width) if order is None else order[step]
