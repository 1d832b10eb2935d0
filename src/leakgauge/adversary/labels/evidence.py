"""What one round says of its labels: the mean output gradient, from the last weight and the last bias together.

With features ``h_i`` and output gradients ``δ_i`` the last layer's gradient is ``mean_i δ_i h_iᵀ``, and ``mean_i δ_i``
for the bias. Features of one network have much in common, so that ``mean_i δ_i h_iᵀ ≈ a μᵀ`` with ``a = mean_i δ_i``:
the rows say a up to one factor, whatever the signs of the features, and the bias says it exactly. Entries that are
exactly zero were pruned, or belong to dead units: they say nothing and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.adversary.labels.layer import LastLayer
from leakgauge.client import LEARNING_RATE, Recipe
from leakgauge.defenses import Gaussian, Identity, Laplace, RandomPrune
from leakgauge.defenses.update.prune import Thresholded
from leakgauge.observation import Round
from leakgauge.task import Task

KEEPS_SCALE = (Identity, Gaussian, Laplace, RandomPrune, Thresholded)
"""Parts after which an update still has the length it had, as far as its survivors tell."""
ROUNDS = 30


@dataclass(frozen=True)
class Evidence:
    """``rows [C]``: a times the size of the mean feature; ``direction [F]``: the unit vector along it; ``bias [C]``: a
    itself where its entry was sent, NaN elsewhere. ``noise`` is the standard deviation of an entry, ``entries [C]``
    how much of the direction each row still has. ``scaled``: the whole is known up to a positive factor only."""

    rows: Tensor
    direction: Tensor
    bias: Tensor
    noise: float
    entries: Tensor
    scaled: bool


def evidence(task: Task, layer: LastLayer, one: Round, batch: int) -> Evidence:
    """What one round says, as the gradient of the mean loss would say it."""
    recipe, (weight_name, bias_name) = task.recipe, layer.names
    weight, bias = one.observed[weight_name].double(), None
    if bias_name is not None:
        bias = one.observed[bias_name].double()
    divisor = float(batch) if recipe.reduction == "sum" else 1.0
    if recipe.shares == "change":  # a weight change points against the gradient
        divisor *= -recipe.learning_rate * sum(momenta(recipe))
    weight = weight / divisor
    bias = None if bias is None else bias / divisor
    if recipe.shares == "change" and recipe.weight_decay:
        weight = weight - recipe.weight_decay * layer.weight * (weight != 0)
        bias = None if bias is None else bias - recipe.weight_decay * layer.bias * (bias != 0)
    rows, direction, left = _rank_one(weight, (one.observed[weight_name] != 0).double())
    absent = torch.full_like(rows, torch.nan)
    sent = absent if bias is None else torch.where(one.observed[bias_name or ""] != 0, bias, absent)
    return Evidence(rows, direction, sent, _noise(weight, bias), left, _hides_scale(task, one))


def momenta(recipe: Recipe) -> list[float]:
    """How often the gradient of each local step is in the whole change, in units of the learning rate."""
    last = recipe.local_steps - 1
    return [sum(recipe.momentum**k for k in range(last - step + 1)) for step in range(recipe.local_steps)]


def _rank_one(weight: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``weight ≈ rows · directionᵀ`` over the entries that are there, by alternating least squares."""
    tiny = torch.finfo(weight.dtype).tiny
    direction = torch.linalg.svd(weight, full_matrices=False)[2][0]
    for _ in range(ROUNDS if bool((mask == 0).any()) else 1):
        held = mask @ direction.square()
        rows = (weight * mask) @ direction / held.clamp(min=tiny)
        direction = (weight * mask).T @ rows / (mask.T @ rows.square()).clamp(min=tiny)
        direction = direction / direction.norm().clamp(min=tiny)
    held = mask @ direction.square()
    return (weight * mask) @ direction / held.clamp(min=tiny), direction, held


def _noise(weight: Tensor, bias: Tensor | None) -> float:
    """The spread of an entry: the gradient of a cross-entropy sums to zero over classes, so what is left is noise.

    Columns that lost entries to pruning say nothing of it.
    """
    table = weight if bias is None else torch.cat([weight, bias.unsqueeze(1)], 1)
    full = table[:, (table != 0).all(0)]
    return float((full.sum(0).square().mean() / len(full)).sqrt()) if full.numel() else 0.0


def _hides_scale(task: Task, one: Round) -> bool:
    rate = LEARNING_RATE in task.nuisances and LEARNING_RATE not in one.granted
    kept = all(isinstance(part, KEEPS_SCALE) for part in task.protection.chain.parts)
    return rate or bool(task.protection.training) or not kept
