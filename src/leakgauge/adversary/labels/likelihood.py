"""Counts by likelihood: ``a_c = base_c − k n_c / B``, with everything that is not known tried and weighed.

``a`` is the mean output gradient, ``base`` that without the label's own share (the softmax, for a cross-entropy) at the
mean feature ``μ = s · direction``, and ``k`` what one label takes away. The size s comes from the bias, or from what
the model does on drawn inputs; a factor of the update that is not known (clipping, a hidden rate) is tried over a grid.
A hypothesis is good where ``n`` comes out as whole numbers that are not negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.adversary.labels.counts import Counts, overlap, whole
from leakgauge.adversary.labels.evidence import Evidence, momenta
from leakgauge.adversary.labels.layer import LastLayer
from leakgauge.client import Recipe
from leakgauge.types import Loss, Tree

SIZES, FACTORS, BEST = 81, 61, 200
FLOOR = 0.05
"""The least standard deviation of a count."""
SURE = 0.02
"""A relative spread below which one number stands for all."""


def counted(evidence: Evidence, layer: LastLayer, change: Tree, recipe: Recipe, batch: int) -> Counts:
    """The likeliest counts of a batch; ``change`` is what a weight change did to the last layer, else empty."""
    sizes, log_prior = _size(evidence, layer).grid()
    base, share = _base(evidence, layer, change, recipe, sizes)
    mean, variance = _mean_gradient(evidence, layer, sizes, batch)
    factors = base.new_ones(len(sizes), 1)
    if evidence.scaled:  # no count is negative: mean_c ≤ factor · base_c for every class
        least = (mean / base.clamp(min=1e-6)).amax(1, keepdim=True).clamp(min=1e-30)
        factors = least * torch.logspace(-0.05, 1.0, FACTORS, dtype=base.dtype, device=base.device)
    table = base.unsqueeze(1) - mean.unsqueeze(1) / factors.unsqueeze(2)
    numbers = batch * table / share.unsqueeze(2)  # [sizes, factors, classes]
    nearest = whole(numbers, batch)
    spread = (batch / share.unsqueeze(2)) ** 2 * (variance.unsqueeze(1) / factors.unsqueeze(2).square())
    spread = spread + (batch * _curvature(layer, recipe.loss)).square() + FLOOR**2
    misfit = ((numbers - nearest).square() / spread + spread.log()).sum(-1) / 2
    score = log_prior.unsqueeze(1) - misfit
    return _best(*(part.flatten(0, 1) for part in (score, numbers, nearest, spread)), batch)


@dataclass(frozen=True)
class _Size:
    """The size of the mean feature along the direction, with its sign, and a standard deviation."""

    mean: float
    spread: float

    @property
    def relative(self) -> float:
        return self.spread / max(abs(self.mean), 1e-30)

    def grid(self) -> tuple[Tensor, Tensor]:
        """Sizes ``[S]`` and the log prior of each; of both signs where the sign is not sure."""
        if self.relative < SURE:
            return torch.tensor([self.mean], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        far = math.log10(abs(self.mean) + self.spread)
        some = torch.logspace(far - 1.5, far + 0.7, SIZES, dtype=torch.float64) * math.copysign(1, self.mean)
        sizes = some if self.relative < 0.3 else torch.cat([some, -some])
        return sizes, -((sizes - self.mean) / self.spread).square() / 2


def _size(evidence: Evidence, layer: LastLayer) -> _Size:
    """From the bias, which is the gradient of a feature that is 1, or from drawn inputs: whichever is surer."""
    known = evidence.bias.isfinite()
    rows, bias = evidence.rows[known], evidence.bias[known]
    if layer.features is None:
        drawn = _Size(0.0, math.sqrt(len(evidence.direction)))
    else:
        along = layer.features @ evidence.direction
        drawn = _Size(float(along.mean()), max(float(along.std()), float(along.mean().abs()) / 2, 1e-30))
    power, inverse = float(rows.square().sum()), float(rows @ bias)
    if not power or not inverse:
        return drawn
    misfit = max(float((bias - rows * inverse / power).square().mean().sqrt()), evidence.noise)
    size = power / inverse
    read = _Size(size, abs(size) * misfit * math.sqrt(power) / abs(inverse))
    return min(read, drawn, key=lambda one: one.relative)


def _base(
    evidence: Evidence, layer: LastLayer, change: Tree, recipe: Recipe, sizes: Tensor
) -> tuple[Tensor, Tensor]:
    """``base [S, C]`` and ``k [S, 1]``, averaged over the local steps: the weights of each lie between before and after
    the change, which everybody sees."""
    weights = momenta(recipe)
    base, share = layer.weight.new_zeros(1), layer.weight.new_zeros(1)
    for step, times in enumerate(weights):
        part = times / sum(weights)
        weight, bias = layer.weight, layer.bias
        if change:
            weight = weight + step / len(weights) * change[layer.names[0]].double()
            bias = bias if layer.names[1] is None else bias + step / len(weights) * change[layer.names[1]].double()
        own = without_label(recipe.loss, sizes.unsqueeze(1) * (weight @ evidence.direction) + bias)
        base, share = base + part * own[0], share + part * own[1]
    return base, share


def without_label(loss: Loss, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the loss at ``outputs [S, C]`` apart from the label's own share, and that share ``[S, 1]``.

    Two labels tell: each class is not the label in one of them. For a cross-entropy: the softmax, and 1.
    """
    slopes = []
    for label in (0, 1):
        with torch.enable_grad():
            moved = outputs.detach().requires_grad_()
            total = loss(moved, torch.full((len(outputs),), label, device=outputs.device)).sum()
            slopes.append(torch.autograd.grad(total, moved)[0])
    first, second = slopes
    base = torch.cat([second[:, :1], first[:, 1:]], 1)
    share = ((second[:, :1] - first[:, :1]) + (first[:, 1:2] - second[:, 1:2])) / 2
    return base, torch.where(share.abs() > 1e-12, share, 1.0)


def _mean_gradient(evidence: Evidence, layer: LastLayer, sizes: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """``a [S, C]`` and its variance: rows and bias, each by how much it says."""
    rows = evidence.rows / sizes.unsqueeze(1)
    differ = _variation(evidence, layer) * rows.abs() / batch  # examples whose features are larger or smaller
    noise = evidence.noise**2
    of_rows = noise / (evidence.entries * sizes.unsqueeze(1).square()).clamp(min=1e-30) + differ + 1e-12
    sent = evidence.bias.isfinite()
    precise = torch.where(sent, 1 / (noise + 1e-12), 0.0).expand_as(rows)
    total = 1 / of_rows + precise
    mean = (rows / of_rows + evidence.bias.nan_to_num() * precise) / total
    return mean, 1 / total


def _variation(evidence: Evidence, layer: LastLayer) -> float:
    """The relative variance of features along their mean, from drawn inputs."""
    if layer.features is None:
        return 0.1
    along = layer.features @ evidence.direction
    return min(max(float(along.var() / along.mean().square().clamp(min=1e-30)), 0.01), 1.0) * 0.3


def _curvature(layer: LastLayer, loss: Loss) -> Tensor:
    """How far the mean of output gradients is from that of the mean feature, ``[C]``: large after training."""
    if layer.features is None:
        return layer.bias.new_zeros(len(layer.bias))
    outputs = layer.features @ layer.weight.T + layer.bias
    each, of_mean = without_label(loss, outputs)[0], without_label(loss, outputs.mean(0, keepdim=True))[0]
    return (each.mean(0) - of_mean[0]).abs()


def _best(score: Tensor, numbers: Tensor, nearest: Tensor, spread: Tensor, batch: int) -> Counts:
    """Hypotheses with the same counts join their weights; beside them stand those with one label moved."""
    order = score.argsort(descending=True)[:BEST]
    weights = (score[order] - score[order[0]]).exp()
    weights = weights / weights.sum()
    distinct, group = nearest[order].unique(dim=0, return_inverse=True)
    joined = torch.zeros(len(distinct), dtype=weights.dtype).index_add(0, group, weights)
    chosen = int(joined.argmax())
    counts, first = distinct[chosen], order[int((group == chosen).nonzero()[0])]
    agreement = float(joined @ overlap(counts, distinct))
    others = [(distinct[i].long(), float(joined[i] / joined[chosen])) for i in range(len(distinct)) if i != chosen]
    others += _moved(counts, numbers[first], spread[first])
    others.sort(key=lambda one: -one[1])
    wrong = float(_expected_error(spread[first]).sum()) / 2 / batch
    return Counts(counts.long(), agreement * max(0.0, 1 - wrong), tuple(others[:8]))


def _moved(counts: Tensor, numbers: Tensor, spread: Tensor) -> list[tuple[Tensor, float]]:
    """Counts with one label of the four doubtful classes given to another class, with their weights."""
    off = numbers - counts
    drop = torch.where(counts > 0, (1 + 2 * off) / (2 * spread), torch.inf)
    add = (1 - 2 * off) / (2 * spread)
    moves = []
    for source in drop.argsort()[:4].tolist():
        for target in add.argsort()[:4].tolist():
            cost = float(drop[source] + add[target])
            if source != target and math.isfinite(cost):
                other = counts.long().clone()
                other[source] -= 1
                other[target] += 1
                moves.append((other, min(1.0, math.exp(-max(cost, 0.0)))))
    return moves


def _expected_error(spread: Tensor) -> Tensor:
    """The mean absolute error of a rounded normal number of these variances: ``Σ_k 2 Φ(−(k + ½) / σ)``."""
    steps = torch.arange(64, dtype=spread.dtype, device=spread.device) + 0.5
    tail = torch.erfc(steps / (2 * spread.unsqueeze(-1)).sqrt())
    return tail.sum(-1)
