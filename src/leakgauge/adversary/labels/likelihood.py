"""Counts by likelihood: ``a_c = base_c − k n_c / B``, with everything that is not known tried and weighed.

``a`` is the mean output gradient, ``base`` that without the label's own share (the softmax, for a cross-entropy) at the
mean feature ``μ = s · direction``, and ``k`` what one label takes away. The size s comes from the bias, or from what
the model does on drawn inputs; a factor of the update that is not known (clipping, a hidden rate) is tried over a grid.
A hypothesis is good where ``n`` comes out as whole numbers that are not negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.adversary.labels.counts import Counts, overlap, whole
from leakgauge.adversary.labels.evidence import Evidence, momenta
from leakgauge.adversary.labels.layer import LastLayer
from leakgauge.client import Recipe
from leakgauge.types import Loss

SIZES, BEST = 81, 2000
HYPOTHESES = 1_000_000
"""Numbers that a table of hypotheses may hold."""
FLOOR = 0.05
"""The least standard deviation of a count."""
SURE = 0.02
"""A relative spread below which one number stands for all."""
TRAINED = (0.1, 0.4)
"""How sure of drawn inputs, above chance, an untrained network may be, and a trained one is: 0.01 was measured before
the training of a CNN, and 0.41 where it classified 73 % of other images (0.84 on those)."""
TRUSTED = 0.3
"""A relative spread below which the bias tells the size of features; noise alone can look like 0.5."""


def counted(evidence: Evidence, path: Sequence[LastLayer], recipe: Recipe, batch: int) -> Counts:
    """The likeliest counts of a batch; ``path`` is the last layer as each local step met it, as far as one knows."""
    layer = path[0]
    sizes, log_prior = _size(evidence, layer).grid()
    base, share = (part.mean(0) for part in _bases(evidence, path, recipe, sizes))
    variation = _variation(evidence, layer)
    mean, noise, of_rows = _mean_gradient(evidence, variation, sizes, batch)
    factors = base.new_ones(len(sizes), 1)
    if evidence.scaled:  # an output gradient of a cross-entropy is at most 1 in each entry
        most = mean.abs().amax(1, keepdim=True).clamp(min=1e-30)
        factors = most * torch.logspace(-0.1, 2.0, _factors(base, batch), dtype=base.dtype, device=base.device)
    table = base.unsqueeze(1) - mean.unsqueeze(1) / factors.unsqueeze(2)
    numbers = batch * table / share.unsqueeze(2)  # [sizes, factors, classes]
    nearest = whole(numbers, batch)
    spread = (batch / share.unsqueeze(2)) ** 2 * (noise.unsqueeze(1) / factors.unsqueeze(2).square())
    # examples whose features are larger or smaller than the mean count for more or less than one
    uneven = variation * of_rows.square().unsqueeze(1) * (nearest + batch * base.square().unsqueeze(1))
    spread = spread + uneven + _softness(path, recipe.loss, batch) + FLOOR**2
    misfit = ((numbers - nearest).square() / spread + spread.log()).sum(-1) / 2
    # in the unit of what was sent: a larger factor spreads the same doubt over more
    score = log_prior.unsqueeze(1) - misfit - base.shape[1] * factors.log()
    best = _best(score.flatten(), numbers.flatten(0, 1), nearest.flatten(0, 1), spread.flatten(0, 1), batch)
    return best if batch == 1 else replace(best, confidence=_tempered(best, layer, batch))


def _factors(base: Tensor, batch: int) -> int:
    """How many factors are tried: from one to the next no count changes by more than a third of a label, as far as a
    table of all hypotheses allows."""
    return max(81, min(15 * batch, HYPOTHESES // base.numel()))


def _tempered(counts: Counts, layer: LastLayer, batch: int) -> float:
    """The confidence as far as the network is untrained, else what an even guess has right, and half at most.

    A trained network already puts each example where its label is, so that ``base`` at the mean feature says little of
    the mean over examples, and the counts are worth little more than a guess. One example has no such mean.
    """
    numbers = counts.counts.double()
    even = whole(torch.full_like(numbers, batch / len(numbers)), batch)
    trained, guess = _trained(layer), min(0.5, float(overlap(numbers, even.unsqueeze(0))[0]))
    return min(counts.confidence, (1 - trained) * counts.confidence + trained * guess)


def _trained(layer: LastLayer) -> float:
    """From 0 to 1, by how sure the network is of drawn inputs; 1 where its features cannot be seen."""
    if layer.features is None:
        return 1.0
    sure = float((layer.features @ layer.weight.T + layer.bias).softmax(-1).amax(-1).mean())
    chance = 1 / len(layer.bias)
    low, high = TRAINED
    return min(1.0, max(0.0, ((sure - chance) / (1 - chance) - low) / (high - low)))


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
    """From the bias, which is the gradient of a feature that is 1; where that is drowned, from drawn inputs."""
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
    return read if read.relative < TRUSTED else drawn


def _bases(evidence: Evidence, path: Sequence[LastLayer], recipe: Recipe, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """``base [steps, S, C]`` and ``k [steps, S, 1]``, weighed by how often each step is in the change (mean 1).

    The mean feature moves along the path as those of drawn inputs do.
    """
    weights = momenta(recipe)
    means = [None if one.features is None else one.features.mean(0) for one in path]
    middle = sum(w * m for w, m in zip(weights, means, strict=True) if m is not None) / sum(weights)
    bases, shares = [], []
    for one, mean, times in zip(path, means, weights, strict=True):
        outputs = sizes.unsqueeze(1) * (one.weight @ evidence.direction) + one.bias
        if mean is not None:
            outputs = outputs + one.weight @ (mean - middle)
        base, share = without_label(recipe.loss, outputs)
        part = times * len(weights) / sum(weights)
        bases.append(part * base)
        shares.append(part * share)
    return torch.stack(bases), torch.stack(shares)


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


def _mean_gradient(evidence: Evidence, variation: float, sizes: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """``a [S, C]``, the variance that noise gives it, and the weight of the rows in it; the bias has the rest."""
    rows = evidence.rows / sizes.unsqueeze(1)
    noise = evidence.noise**2
    of_rows = (noise + evidence.rough**2) / (evidence.entries * sizes.unsqueeze(1).square()).clamp(min=1e-30)
    precise = torch.where(evidence.bias.isfinite(), 1 / (noise + 1e-12), 0.0)
    by_rows = 1 / (of_rows + variation * rows.abs() / batch + 1e-12)
    weight = by_rows / (by_rows + precise)
    mean = weight * rows + (1 - weight) * evidence.bias.nan_to_num()
    return mean, weight.square() * of_rows + (1 - weight).square() * noise, weight


def _variation(evidence: Evidence, layer: LastLayer) -> float:
    """The relative variance of features along their mean, from drawn inputs; 0.3 of it, chosen on train records."""
    if layer.features is None:
        return 0.03
    along = layer.features @ evidence.direction
    mean, spread = float(along.mean().abs()), float(along.std())
    return 0.3 * (spread / max(mean + spread, 1e-30)) ** 2


def _softness(path: Sequence[LastLayer], loss: Loss, batch: int) -> Tensor:
    """The variance of counts ``[C]`` that comes from outputs that differ: between examples, between the mean of output
    gradients and that of the mean feature (both large after training), and between the first and last local step."""
    every = []
    for layer in (path[0], path[-1]):
        if layer.features is None:
            return layer.bias.new_zeros(len(layer.bias))
        outputs = layer.features @ layer.weight.T + layer.bias
        each, of_mean = without_label(loss, outputs)[0], without_label(loss, outputs.mean(0, keepdim=True))[0]
        every.append((each.mean(0), batch * each.var(0) + (batch * (each.mean(0) - of_mean[0])).square()))
    moved = every[0][0] - every[1][0]
    return every[0][1] + (0.2 * batch * moved).square()


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
    return Counts(counts.long(), agreement * max(0.0, 1 - wrong), tuple(others[:8]), numbers[first])


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
