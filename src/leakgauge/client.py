"""ONE client: ``(params, buffers, inputs, labels, recipe, nuisances) → update``, pure and differentiable.

Victim, adversary, doctor and gate all call :func:`update_of`, with the same loss object. It never mutates
the user's model, buffers, gradients or train flag; :class:`leakgauge.task.Task` hands it a private copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.losses import CrossEntropy
from leakgauge.types import Loss, Tree
from leakgauge.updates import trees


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

    def reduce(self, losses: Tensor) -> Tensor:
        """Per-example losses ``[…, B]`` to the loss of a batch, ``[…]``."""
        return losses.mean(-1) if self.reduction == "mean" else losses.sum(-1)


def gradient_of(
    model: nn.Module,
    params: Tree,
    buffers: Tree,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    nuisances: Tree | None = None,
) -> dict[str, Tensor]:
    """``∇_θ ℓ(h_θ(x), y)`` of one batch, differentiable in every argument.

    ``nuisances`` are the random numbers of a model-stage defense, by the name of the buffer that takes them.
    """

    def loss(theta: dict[str, Tensor]) -> Tensor:
        outputs = functional_call(model, (theta, {**buffers, **(nuisances or {})}), (inputs,))
        return recipe.reduce(recipe.loss(outputs, labels))

    made: dict[str, Tensor] = grad(loss)(dict(params))
    return made


def update_of(
    model: nn.Module,
    params: Tree,
    buffers: Tree,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    nuisances: Tree | None = None,
) -> dict[str, Tensor]:
    """What a client computes from a batch: its gradient, or its weight change after local training."""
    hidden = nuisances or {}
    if recipe.shares == "gradient":
        return gradient_of(model, params, buffers, inputs, labels, recipe, hidden)
    theta, velocity = dict(params), {name: torch.zeros_like(p) for name, p in params.items()}
    for batch in _slices(recipe, len(inputs)):
        mine = {name: value[batch] for name, value in hidden.items()}
        step = gradient_of(model, theta, buffers, inputs[batch], labels[batch], recipe, mine)
        step = trees.mapped(lambda g, p: g + recipe.weight_decay * p, step, theta)
        velocity = trees.mapped(lambda v, g: recipe.momentum * v + g, velocity, step)
        theta = trees.mapped(lambda p, v: p - recipe.learning_rate * v, theta, velocity)
    return trees.mapped(torch.sub, theta, params)


def _slices(recipe: Recipe, size: int) -> Iterator[slice]:
    width = recipe.minibatch or size
    starts = range(0, size - width + 1, width)
    for step in range(recipe.local_steps):
        start = starts[step % len(starts)]
        yield slice(start, start + width)
