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
from leakgauge.adversary.labels.rate import hides_rate
from leakgauge.client import Recipe
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
    itself where its entry was sent, NaN elsewhere. ``noise`` is the standard deviation of an entry, ``rough`` that of
    what the rows leave unexplained where entries were pruned, ``entries [C]`` how much of the direction each row still
    has. ``scaled``: the whole is known up to a positive factor only."""

    rows: Tensor
    direction: Tensor
    bias: Tensor
    noise: float
    rough: float
    entries: Tensor
    scaled: bool


def evidence(task: Task, recipe: Recipe, layer: LastLayer, one: Round, batch: int) -> Evidence:
    """What one round says, as the gradient of the mean loss would say it. ``recipe`` is what is known of the task's."""
    weight, masks = _gradient(recipe, layer, one, batch, layer.names[0])
    if _fills(task) and layer.features is not None:
        direction = layer.features.mean(0) / layer.features.mean(0).norm().clamp(min=1e-30)
        rows, held, rough = weight @ direction, torch.ones_like(weight[:, 0]), 0.0
    else:
        rows, direction, held, rough = _rank_one(weight, masks, layer)
    if layer.names[1] is None or _fills(task):  # an entry of the bias may be noise alone
        bias, sent = rows.new_full(rows.shape, torch.nan), None
    else:
        entries, there = _gradient(recipe, layer, one, batch, layer.names[1])
        bias, sent = torch.where(there > 0, entries, torch.nan), entries
    scaled = batch == 1 or _hides_scale(task, one)  # of one example the direction says all, whatever the scale
    return Evidence(rows, direction, bias, _noise(weight, sent), rough, held, scaled)


def momenta(recipe: Recipe) -> list[float]:
    """How often the gradient of each local step is in the whole change, in units of the learning rate."""
    last = recipe.local_steps - 1
    return [sum(recipe.momentum**k for k in range(last - step + 1)) for step in range(recipe.local_steps)]


def _gradient(recipe: Recipe, layer: LastLayer, one: Round, batch: int, name: str) -> tuple[Tensor, Tensor]:
    """One tensor of the update as a gradient of the mean loss, and where it has entries: by a granted mask, or where
    it is not zero."""
    value = one.observed[name].double()
    masks = [held[name] for held in one.granted.values() if not isinstance(held, Tensor) and name in held]
    fitting = [mask.expand_as(value) for mask in masks if mask.unique().numel() <= 2]
    there = ((fitting[0] if fitting else value) != 0).double()
    divisor = float(batch) if recipe.reduction == "sum" else 1.0
    if recipe.shares == "gradient":
        return value / divisor * there, there
    # a weight change points against the gradient
    state = layer.weight if name == layer.names[0] else layer.bias
    slope = -value / (divisor * recipe.learning_rate * sum(momenta(recipe))) - recipe.weight_decay / divisor * state
    return slope * there, there


def _rank_one(weight: Tensor, mask: Tensor, layer: LastLayer) -> tuple[Tensor, Tensor, Tensor, float]:
    """``weight ≈ rows · directionᵀ`` over the entries that are there; how much of it each row has; what is left over.

    Where entries are missing, by alternating least squares from the mean feature of drawn inputs, which counts as one
    more row.
    """
    tiny = torch.finfo(weight.dtype).tiny
    left = mask.sum(0)
    if not bool(((left > 0) & (left < len(mask))).any()):
        direction = torch.linalg.svd(weight, full_matrices=False)[2][0]
        return weight @ direction, direction, torch.ones_like(weight[:, 0]), 0.0
    drawn = torch.ones_like(weight[0]) if layer.features is None else layer.features.mean(0)
    drawn = drawn / drawn.norm().clamp(min=tiny)
    direction = drawn
    for _ in range(ROUNDS):
        rows = weight @ direction / (mask @ direction.square()).clamp(min=tiny)
        typical = rows.square().mean()
        direction = (weight.T @ rows + typical * drawn) / (mask.T @ rows.square() + typical).clamp(min=tiny)
        direction = direction / direction.norm().clamp(min=tiny)
    held = mask @ direction.square()
    rows = weight @ direction / held.clamp(min=tiny)
    rest = (weight - rows.unsqueeze(1) * direction) * mask
    return rows, direction, held, float((rest.square().sum() / mask.sum().clamp(min=1)).sqrt())


def _noise(weight: Tensor, bias: Tensor | None) -> float:
    """The spread of an entry: the gradient of a cross-entropy sums to zero over classes, so what is left is noise.

    Columns that lost entries to pruning say nothing of it.
    """
    table = weight if bias is None else torch.cat([weight, bias.unsqueeze(1)], 1)
    full = table[:, (table != 0).all(0)]
    return float((full.sum(0).square().mean() / len(full)).sqrt()) if full.numel() else 0.0


def _hides_scale(task: Task, one: Round) -> bool:
    parts = task.protection.chain.parts
    scale_stays = all(isinstance(part, KEEPS_SCALE) for part in parts)
    own_scale = task.recipe.optimiser == "adam"  # its steps are as long whatever the gradient
    return own_scale or hides_rate(task, one) or bool(task.protection.training) or not scale_stays or _fills(task)


def _fills(task: Task) -> bool:
    """Whether noise hides which entries are missing."""
    return any(isinstance(part, RandomPrune) for part in task.protection.chain.parts[:-1])
