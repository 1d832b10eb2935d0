"""Stochastic quantisation: a few levels per entry, right on average."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.update.base import Conditions, EntryDensity, UpdatePart, conditioned, draw
from leakgauge.errors import NoDensityError
from leakgauge.expr import register
from leakgauge.types import Context, Known, Nuisance, Release, Tree, Updates
from leakgauge.updates import Sloped, Slopes, trees

Step = TypeVar("Step", Tensor, Tree)
"""One step per tensor of the update, or what of them belongs to the entries in question."""


@register("defense", "quantise")
@dataclass(frozen=True, repr=False)
class Quantise(UpdatePart):
    """Round every entry to one of its two neighbours among ``2·levels + 1`` values, at random and without bias.

    In each tensor ``Δ = max|u| / levels``, and ``o`` is the multiple of Δ below or above u, the nearer the likelier:
    ``P(o | u) = max(0, 1 − |u − o| / Δ)``. The largest entry is exact, so that everybody can read Δ off. After noise
    the two weights are integrated against its density, given Δ: what lies beyond the largest entry counts as that.
    ``levels=1`` is TernGrad. No setting is neutral.

    References:
        Wen et al., TernGrad, 2017. https://arxiv.org/abs/1705.07878; Alistarh et al., QSGD, 2017 (with the
        largest magnitude as the scale). https://arxiv.org/abs/1610.02132
    """

    levels: int = 1
    post_processing: ClassVar[bool] = True
    makes_zeros: ClassVar[bool] = True

    def __post_init__(self) -> None:
        guards.count(self.levels, "levels", "quantise")

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("step", per="tensor", visible=self._step_of),)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        step = trees.mapped(lambda u: (u.abs().max() / self.levels).view([1] * u.dim()), update)
        observed = trees.mapped(lambda u, d: _rounded(u, d, generator), update, step)
        return Release(observed, {"step": step})

    def _step_of(self, observed: Tree) -> Tree:
        return trees.mapped(lambda o: _largest(o) / self.levels, observed)

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        """``Σ log P(o_e | u_e)``; minus infinity where an entry is further than Δ from what was observed."""
        return conditioned(self.density_given, observed, update, {"step": self._step(known)})

    def density_given(self, known: Conditions) -> EntryDensity:
        step = self._step(known)

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            width, zero = torch.where(step > 0, step, 1.0), torch.zeros_like(u + low)
            chances = [
                torch.where(inside, (1 - (u - level).abs() / width).clamp(min=0), zero)
                for level, inside in self._levels(low, high, step)
            ]
            total = torch.stack(chances).sum(0)
            return torch.where(total > 0, total.clamp(min=torch.finfo(total.dtype).tiny).log(), -math.inf)

        return EntryDensity(lambda u, o: _log_hat(u, o, step), log_mass, atom=True, lattice=True)

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity | None:
        hat = density.log_hat
        if hat is None:
            return None
        step = self._step(known)

        def chance(u: Tensor, o: Tensor) -> Tensor:
            # beyond the last level is the last level; tensors of zeros have no step
            width = torch.where(step > 0, step, 1.0).expand_as(u + o)
            level = o / width
            below = torch.where(level < 0.5 - self.levels, math.inf, width)
            above = torch.where(level > self.levels - 0.5, math.inf, width)
            return torch.where(step > 0, hat(u, o, below, above), 0.0)

        def log(u: Tensor, o: Tensor) -> Tensor:
            possible = torch.where(step > 0, _on_grid(o, step) & (o.abs() < (self.levels + 0.5) * step), o == 0)
            return torch.where(possible, chance(u, o), -math.inf)

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            pairs = list(self._levels(low, high, step))
            # a large number in the place of infinity: a sum of nothing would have no slope
            chances = [torch.where(inside, chance(u, level), -1e30) for level, inside in pairs]
            some = torch.stack([inside for _, inside in pairs]).any(0)
            return torch.where(some, torch.logsumexp(torch.stack(chances), 0), -math.inf)

        return EntryDensity(log, log_mass, atom=True, lattice=True)

    def _levels(self, low: Tensor, high: Tensor, step: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Every level and where it lies inside ``(low, high)``; an end that is a level is outside, rounded or not."""
        for k in range(-self.levels, self.levels + 1):
            level = k * step
            inside = (low + 1e-5 * step < level) & (level < high - 1e-5 * step)
            yield level, inside & ((step > 0) | (k == 0))

    def log_forgiving(
        self,
        observed: Tree,
        update: Updates,
        known: Known,
        share: float,
        threshold: Tree | None = None,
        dropped: float = 0.0,
    ) -> Tensor:
        """The mean over entries of ``log((1 − s) P(o | u) + s e^{−a})``: a share s of them may be anywhere.

        A share ``dropped`` was set to zero at random before, nobody knows where: ``P(0 | u)`` is then that much larger.

        ``a = |u − o| / Δ``; where a later pruning sent a zero, any level below its ``threshold`` τ did it, and a is the
        way to the last of those, ``(|u| − τ + Δ)₊ / Δ``. The density itself is minus infinity for any candidate that is
        not nearly right, and has no slope there.
        """
        step = self._step(known)
        below = trees.mapped(torch.zeros_like, step)
        if threshold is not None:
            below = trees.mapped(
                lambda o, t, d: torch.where(o == 0, (t - d).clamp(min=0), 0.0), observed, threshold, step
            )
        value = update.entries(_forgiving(share, dropped), observed, step, below).sum(1)
        return value / sum(update.sizes)

    def _step(self, known: Mapping[str, Step]) -> Step:
        if "step" not in known:
            raise NoDensityError(
                f"the step of {self!r} is hidden by a part after it", remedy=f"grant its step, or put {self!r} last"
            )
        return known["step"]


def _rounded(u: Tensor, step: Tensor, generator: Generator) -> Tensor:
    chance = draw(u, generator, torch.rand)
    if float(step) == 0:  # a tensor of zeros
        return u.clone()
    size = u.abs() / step
    low = size.floor()
    return u.sign() * (low + (chance < size - low)) * step


def _largest(observed: Tensor) -> Tensor:
    return observed.abs().reshape(len(observed), -1).amax(1).view(-1, *[1] * (observed.dim() - 1))


def _log_hat(u: Tensor, o: Tensor, step: Tensor) -> Tensor:
    gap = (u - o).abs()
    inside = torch.log1p(-(gap / step).clamp(max=1.0))
    # a tensor of zeros is sent as it is
    exact = torch.where(gap == 0, 0.0, -math.inf).to(u)
    return torch.where(step > 0, torch.where(_on_grid(o, step), inside, -math.inf), exact)


def _on_grid(o: Tensor, step: Tensor) -> Tensor:
    level = o / step
    return (level - level.round()).abs() < 1e-5 * (1 + level.abs())


def _forgiving(share: float, dropped: float = 0.0) -> Sloped:
    """``log((1 − s) P + s e^{−a})`` with ``a = (|u − o| − below)₊ / Δ``, and its slope.

    ``P = (1 − p) (1 − a)₊ + p [o = 0]``, with ``p = dropped``.
    """
    survives = (1 - share) * (1 - dropped)

    def pieces(u: Tensor, o: Tensor, step: Tensor, below: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        away, width = u - o, step.clamp(min=torch.finfo(u.dtype).tiny ** 0.5)
        gap = ((away.abs() - below) / width).clamp(min=0)
        zero = (1 - share) * dropped * (o == 0).to(gap)
        return away, gap, zero, share * torch.exp(-gap)

    def value(u: Tensor, o: Tensor, step: Tensor, below: Tensor) -> Tensor:
        _, gap, zero, tail = pieces(u, o, step, below)
        # far out the exponential vanishes before its logarithm does
        near = (gap < 1) | (zero > 0)
        mass = survives * (1 - gap).clamp(min=0) + zero + tail
        return torch.where(near, torch.log(torch.where(near, mass, 1.0)), math.log(share) - gap)

    def both(u: Tensor, o: Tensor, step: Tensor, below: Tensor) -> Slopes:
        away, gap, zero, tail = pieces(u, o, step, below)
        mass = survives * (1 - gap).clamp(min=0) + zero + tail
        far = (gap >= 1) & (zero == 0)
        total = torch.where(far, math.log(share) - gap, torch.log(mass.clamp(min=torch.finfo(u.dtype).tiny))).sum()
        steep = torch.where(far, 1.0, (survives * (gap < 1).to(gap) + tail) / torch.where(far, 1.0, mass))
        steep = torch.where(gap > 0, steep, 0.0)
        slope = steep.mul_(away.sign()).div_(step.clamp(min=torch.finfo(u.dtype).tiny ** 0.5))
        return total, slope, -1.0

    return Sloped(value, both)
