"""ONE client: ``(params, buffers, inputs, labels, recipe, drawn) → update``, pure and differentiable.

Victim, adversary, doctor and gate all call :func:`update_of`, with the same loss object. It never mutates
the user's model, buffers, gradients or train flag; :class:`leakgauge.task.Task` hands it a private copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.losses import CrossEntropy
from leakgauge.types import Loss, Nuisance, Tree
from leakgauge.updates import trees

RECIPE = "recipe"
LABELS = "recipe.labels"
LEARNING_RATE = "recipe.learning_rate"
DROPOUT = "recipe.dropout"
"""The addresses of what the recipe itself leaves open."""


@dataclass(frozen=True)
class Recipe:
    """How a client trains.

    ``shares="gradient"`` sends the gradient of one batch; ``"change"`` sends ``θ_after − θ_before`` after
    ``local_steps`` steps of SGD (momentum, weight decay) over consecutive slices of ``minibatch`` examples.
    ``batch`` is the number of examples a client uses for one update.
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

    def __post_init__(self) -> None:
        for name, low in (("batch", 1), ("local_steps", 1)):
            guards.count(getattr(self, name), name, "recipe", least=low)
        if self.minibatch is not None and not 1 <= self.minibatch <= self.batch:
            raise DomainError(
                f"minibatch must lie in 1..{self.batch} (batch), got {self.minibatch}",
                where="recipe",
                remedy=f"say at most {self.batch}",
            )
        choices = {"mode": ("train", "eval"), "reduction": ("mean", "sum"), "shares": ("gradient", "change")}
        for name, allowed in choices.items():
            guards.choice(getattr(self, name), name, "recipe", allowed)
        guards.positive(self.learning_rate, "learning_rate", "recipe")
        if self.shares == "gradient" and self.local_steps > 1:
            raise DomainError(
                f"{self.local_steps} local steps have no single gradient",
                where="recipe",
                remedy='say shares="change"',
            )

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:
        """What is not the record: its label, and the learning rate where the update depends on it."""
        labels = Nuisance("labels", per="example")
        return (labels, Nuisance("learning_rate", per="update")) if self.shares == "change" else (labels,)

    def reduce(self, losses: Tensor) -> Tensor:
        """Per-example losses ``[…, B]`` to the loss of a batch, ``[…]``."""
        return losses.mean(-1) if self.reduction == "mean" else losses.sum(-1)


@dataclass(frozen=True)
class Drawn:
    """What a client drew for one update: the rate of every local step ``[steps]`` (None: the recipe's own), and
    random numbers of the model by the name of the buffer that takes them, ``[B, …]``, or ``[B, steps, …]`` where
    every local step draws its own."""

    rates: Tensor | None = None
    buffers: Mapping[str, Tensor] = field(default_factory=dict)

    def at(self, step: int, batch: slice, steps: int) -> dict[str, Tensor]:
        """The buffers of one local step."""
        return {name: value[batch] if steps == 1 else value[batch][:, step] for name, value in self.buffers.items()}


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


def update_of(
    model: nn.Module,
    params: Tree,
    buffers: Tree,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    drawn: Drawn | None = None,
) -> dict[str, Tensor]:
    """What a client computes from a batch: its gradient, or its weight change after local training.

    A perturbed rate scales a shared gradient as it would scale the step: by its ratio to the recipe's rate.
    """
    drawn = drawn or Drawn()
    rates, steps = drawn.rates, recipe.local_steps
    if recipe.shares == "gradient":
        used = {**buffers, **drawn.at(0, slice(None), 1)}
        gradient = gradient_of(model, params, used, inputs, labels, recipe)
        return gradient if rates is None else trees.mapped(lambda g: rates[0] / recipe.learning_rate * g, gradient)
    theta, velocity = dict(params), {name: torch.zeros_like(p) for name, p in params.items()}
    for step, batch in enumerate(_slices(recipe, len(inputs))):
        rate = recipe.learning_rate if rates is None else rates[step]
        used = {**buffers, **drawn.at(step, batch, steps)}
        slope = gradient_of(model, theta, used, inputs[batch], labels[batch], recipe)
        slope = trees.mapped(lambda g, p: g + recipe.weight_decay * p, slope, theta)
        velocity = trees.mapped(lambda v, g: recipe.momentum * v + g, velocity, slope)
        theta = trees.mapped(lambda p, v, rate=rate: p - rate * v, theta, velocity)
    return trees.mapped(torch.sub, theta, params)


def _slices(recipe: Recipe, size: int) -> Iterator[slice]:
    width = recipe.minibatch or size
    starts = range(0, size - width + 1, width)
    for step in range(recipe.local_steps):
        start = starts[step % len(starts)]
        yield slice(start, start + width)
