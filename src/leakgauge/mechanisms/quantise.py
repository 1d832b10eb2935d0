"""Stochastic quantisation: a few levels per entry, right on average."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge import guards, tree
from leakgauge.errors import NoDensityError
from leakgauge.expr import register
from leakgauge.mechanisms.base import UpdatePart, draw
from leakgauge.tree import Sloped, Slopes
from leakgauge.types import Context, Release, Side, Tree, Updates


@register("mechanism", "quantise")
@dataclass(frozen=True, repr=False)
class Quantise(UpdatePart):
    """Round every entry to one of its two neighbours among ``2·levels + 1`` values, at random and without bias.

    In each tensor ``Δ = max|u| / levels``, and ``o`` is the multiple of Δ below or above u, the nearer the likelier:
    ``P(o | u) = max(0, 1 − |u − o| / Δ)``. The largest entry is exact, so that everybody can read Δ off. ``levels=1``
    is TernGrad. No setting is neutral.

    References:
        Wen et al., TernGrad, 2017. https://arxiv.org/abs/1705.07878; Alistarh et al., QSGD, 2017 (with the
        largest magnitude as the scale). https://arxiv.org/abs/1610.02132
    """

    levels: int = 1
    nuisances: ClassVar[tuple[str, ...]] = ("step",)
    closed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        guards.count(self.levels, "levels", "quantise")

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        step = tree.mapped(lambda u: (u.abs().max() / self.levels).view([1] * u.dim()), update)
        observed = tree.mapped(lambda u, d: _rounded(u, d, generator), update, step)
        return Release(observed, {"step": step})

    def visible(self, observed: Tree) -> dict[str, Tree]:
        return {"step": tree.mapped(lambda o: _largest(o) / self.levels, observed)}

    def log_density(self, observed: Tree, update: Updates, *, side: Side) -> Tensor:
        """``Σ log P(o_e | u_e)``; minus infinity where an entry is further than Δ from what was seen."""
        return update.entries(_log_hat, observed, self._step(side)).sum(1)

    def log_forgiving(self, observed: Tree, update: Updates, side: Side, share: float) -> Tensor:
        """The mean over entries of ``log((1 − s) P(o | u) + s e^{−|u − o|/Δ})``: a share s of them may be anywhere.

        The density itself is minus infinity for any candidate that is not nearly right, and has no slope there.
        """
        value = update.entries(_forgiving(share), observed, self._step(side)).sum(1)
        return value / sum(update.sizes)

    def _step(self, side: Side) -> Tree:
        if "step" not in side:
            raise NoDensityError(
                f"the step of {self!r} is hidden by a part after it", remedy=f"grant its step, or put {self!r} last"
            )
        return side["step"]


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
    on_grid = (o / step - (o / step).round()).abs() < 1e-5 * (1 + (o / step).abs())
    # a tensor of zeros is sent as it is
    exact = torch.where(gap == 0, 0.0, -math.inf).to(u)
    return torch.where(step > 0, torch.where(on_grid, inside, -math.inf), exact)


def _forgiving(share: float) -> Sloped:
    """``log((1 − s) (1 − a)₊ + s e^{−a})`` with ``a = |u − o| / Δ``, and its slope."""

    def pieces(u: Tensor, o: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scaled = (u - o) / step.clamp(min=torch.finfo(u.dtype).tiny ** 0.5)
        gap = scaled.abs()
        return scaled, gap, share * torch.exp(-gap)

    def value(u: Tensor, o: Tensor, step: Tensor) -> Tensor:
        _, gap, tail = pieces(u, o, step)
        # far out the exponential vanishes before its logarithm does
        return torch.where(gap < 1, torch.log((1 - share) * (1 - gap).clamp(min=0) + tail), math.log(share) - gap)

    def both(u: Tensor, o: Tensor, step: Tensor) -> Slopes:
        scaled, gap, tail = pieces(u, o, step)
        near = gap < 1
        hat = (1 - share) * (1 - gap) + tail
        total = torch.where(near, torch.log(hat.clamp(min=torch.finfo(u.dtype).tiny)), math.log(share) - gap).sum()
        steep = torch.where(near, (1 - share + tail) / hat, 1.0)
        slope = steep.mul_(scaled.sign()).div_(step.clamp(min=torch.finfo(u.dtype).tiny ** 0.5))
        return total, slope, -1.0

    return Sloped(value, both)
