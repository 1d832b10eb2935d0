"""Rounds of one client looked at together: does what should be drawn afresh repeat?

A client that re-seeds its generator every round adds the same noise each time: the difference of two updates is then
the exact difference of their gradients, whatever the noise was worth in one round. Three tests, each at a stated level
under the hypothesis that every round draws its own:

- *a known law*: the difference of two entries with fresh noise has a density of at most f, the peak of the noise's,
  whatever the gradients are; so no more than a share ``2 t f`` of the differences lies within ±t, up to chance
  (binomial).
- *no known law*: the gradient of a linear layer has at most the rank of the batch, so what lies beyond is noise. Its
  correlation between two rounds is about normal with variance 1/n for n free entries.
- *a random mask*: the number of entries that both masks hide is hypergeometric.

Hidden learning rates have a test of their own (:mod:`leakgauge.adversary.rates`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import torch
from scipy import stats
from torch import Tensor

from leakgauge.defenses import GaussianNoise, LaplaceNoise, NoiseLaw
from leakgauge.types import Tree

LEVEL = 0.001
"""The chance that fresh draws are said to repeat, over all pairs of rounds and tests together."""

NEAR = 0.01
"""Under a known law, the share of differences that may lie near zero by chance."""

VISIBLE = 1e-4
"""What lies beyond the rank of a gradient is rounding, not noise, below this share of its norm."""

FLAT = 1.5
"""Noise has no leading direction: its norm is at most this many times ``(√a + √b)/√(ab)`` of its length, if a × b."""

CONTINUOUS = 0.9
"""The least share of distinct entries in an update with additive noise."""

SAME = 0.99
"""The least correlation that counts as the same noise, which leaves one up to rounding; local steps leave less."""

HINT = 0.1
"""Noise that repeats correlates more than this before the directions of both rounds are removed, fresh noise of a
matrix that matters does not: most pairs are decided by one product."""


@dataclass(frozen=True)
class Repeat:
    """Rounds ``first`` and ``second`` share their noise, mask or rates; ``p`` is the chance under fresh draws."""

    what: Literal["noise", "mask", "rates"]
    first: int
    second: int
    p: float

    def described(self, first: str, second: str) -> str:
        """In words, with the names of the two rounds."""
        chance = f"p = {self.p:.1g}" if self.p > 1e-12 else "p < 1e-12"
        verb = "repeat" if self.what == "rates" else "repeats"
        return f"the {self.what} of rounds {first} and {second} {verb} ({chance}, level {LEVEL})"

    def __str__(self) -> str:
        return self.described(str(self.first + 1), str(self.second + 1))


def repeats(
    observed: Sequence[Tree], *, batch: int, law: NoiseLaw | None = None, masked: bool = False, level: float = LEVEL
) -> list[Repeat]:
    """Every pair of rounds whose noise, or random mask, is the same.

    ``law`` is that of the noise which comes last, if known; ``masked`` says that a random mask hides entries. Updates
    that are equal in every entry are one file twice, or one record at the same weights: they repeat under a known law
    and say nothing without one.
    """
    pairs = list(combinations(range(len(observed)), 2))
    tests = 1 + (law is not None) + masked
    each = level / max(1, len(pairs) * tests)
    several = []
    sketches = [_sketched(one, batch) for one in observed]
    for i, j in pairs:
        chances = [
            p
            for p in (_by_law(observed[i], observed[j], law), _by_rank(sketches[i], sketches[j], batch))
            if p is not None
        ]
        if chances and min(chances) < each:
            several.append(Repeat("noise", i, j, min(1.0, min(chances) * level / each)))
        if masked and (p := _by_mask(observed[i], observed[j])) < each:
            several.append(Repeat("mask", i, j, min(1.0, p * level / each)))
    return several


def _by_law(one: Tree, other: Tree, law: NoiseLaw | None) -> float | None:
    """The chance of so many differences near zero under fresh noise of this law; None without a bounded density."""
    peak = _peak(law)
    if peak is None:
        return None
    within = NEAR / (2 * peak)
    near = entries = 0
    for name, value in one.items():
        gap = (value - other[name]).abs()
        near, entries = near + int((gap <= within).sum()), entries + gap.numel()
    if near <= NEAR * entries:  # no more than the mean: nothing to count
        return 1.0
    return max(float(stats.binom.sf(near - 1, entries, NEAR)), 5e-324)


def _peak(law: NoiseLaw | None) -> float | None:
    """The largest density of one entry's noise."""
    if isinstance(law, GaussianNoise):
        return 1 / (law.std * math.sqrt(2 * math.pi))
    return 1 / (2 * law.scale) if isinstance(law, LaplaceNoise) else None


@dataclass(frozen=True)
class _Sketch:
    """A matrix of one round with its leading singular directions, and what is left without them, of length one."""

    matrix: Tensor
    left: Tensor
    right: Tensor
    rest: Tensor

    def correlates(self, other: _Sketch) -> bool:
        """Whether noise may be shared, before the directions of both are removed."""
        return float(self.rest @ other.rest) >= HINT


def _sketched(update: Tree, batch: int) -> dict[str, _Sketch]:
    """The matrices of a round in which noise can be told from a gradient; looked at once, not once for every pair."""
    sketches = {}
    for name, value in update.items():
        if value.dim() == 2 and 2 * _rank(value, batch) < min(value.shape) and _continuous(value):
            rank = _rank(value, batch)
            u, s, v = torch.linalg.svd(value.double(), full_matrices=False)
            rest = ((u[:, rank:] * s[rank:]) @ v[rank:]).flatten()
            length = rest.norm().clamp(min=torch.finfo(rest.dtype).tiny)
            sketches[name] = _Sketch(value, u[:, :rank], v[:rank].T, (rest / length).float())
    return sketches


def _rank(matrix: Tensor, batch: int) -> int:
    """How many directions go: a quarter at least, so that a few local steps, which raise the rank, are covered."""
    return max(batch, min(matrix.shape) // 4)


def _by_rank(one: Mapping[str, _Sketch], other: Mapping[str, _Sketch], batch: int) -> float | None:
    """The chance of so high a correlation beyond the rank of a gradient; None where there is no noise to compare."""
    product, squares, entries = 0.0, [0.0, 0.0], 0
    pairs = [(sketch, other[name]) for name, sketch in one.items() if name in other]
    pairs = [(a, b) for a, b in pairs if not torch.equal(a.matrix, b.matrix)]
    if pairs and not any(a.correlates(b) for a, b in pairs):
        return 1.0
    for a, b in pairs:
        beyond = _beyond(a, b, batch)
        if beyond is None:
            continue
        first, second, free = beyond
        product += float((first * second).sum())
        squares = [squares[0] + float(first.square().sum()), squares[1] + float(second.square().sum())]
        entries += free
    if entries < 30 or min(squares) <= 0:
        return None
    correlation = product / math.sqrt(squares[0] * squares[1])
    return max(float(stats.norm.sf(correlation * math.sqrt(entries))), 5e-324) if correlation > SAME else 1.0


def _continuous(value: Tensor) -> bool:
    """Whether entries differ from each other, as with additive noise; pruned or quantised ones do not."""
    return int(value.unique().numel()) > CONTINUOUS * value.numel()


def _beyond(one: _Sketch, other: _Sketch, batch: int) -> tuple[Tensor, Tensor, int] | None:
    """Both matrices without the leading singular directions of either, scaled alike, and the entries left free.

    What then still has a leading direction is no noise.
    """
    rank = _rank(one.matrix, batch)
    height, width = (length - 2 * rank for length in one.matrix.shape)
    flat = FLAT * (math.sqrt(height) + math.sqrt(width)) / math.sqrt(height * width)
    left, _ = torch.linalg.qr(torch.cat([one.left, other.left], 1))
    right, _ = torch.linalg.qr(torch.cat([one.right, other.right], 1))
    rests = []
    for each in (one.matrix.double(), other.matrix.double()):
        rest = each - left @ (left.T @ each)
        rest = rest - (rest @ right) @ right.T
        length = float(rest.norm())
        if length <= VISIBLE * float(each.norm()) or float(torch.linalg.matrix_norm(rest, 2)) > flat * length:
            return None
        rests.append(rest / length)
    return rests[0], rests[1], height * width


def _by_mask(one: Tree, other: Tree) -> float:
    """The chance that fresh masks hide so many entries in common; rows that are zero in both are dead, not hidden."""
    entries = first = second = both = 0
    for name, value in one.items():
        zero, too = value == 0, other[name] == 0
        if value.dim() > 1:
            alive = ~(zero & too).flatten(1).all(1)
            zero, too = zero[alive], too[alive]
        entries, first, second = entries + zero.numel(), first + int(zero.sum()), second + int(too.sum())
        both += int((zero & too).sum())
    return float(stats.hypergeom.sf(both - 1, entries, first, second)) if 0 < first < entries else 1.0


__all__ = ["LEVEL", "Repeat", "repeats"]
