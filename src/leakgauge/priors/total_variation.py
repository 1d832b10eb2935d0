"""Total variation: neighbouring pixels are similar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.expr import register
from leakgauge.priors.base import PriorPart
from leakgauge.types import Candidate

Kind = Literal["anisotropic", "isotropic", "quadratic"]
Reduce = Literal["mean", "sum"]
SMOOTHING = 1e-8
"""Under the root of the isotropic kind: without it the gradient of a flat image is 0/0."""


@register("prior", "tv")
@dataclass(frozen=True, repr=False)
class TotalVariation(PriorPart):
    """Minus the total variation of the images of a problem.

    With dx, dy the differences of neighbouring columns and rows of all B images and channels:
    ``anisotropic`` ``mean|dx| + mean|dy|``; ``isotropic`` ``mean √(dx² + dy² + 1e-8)`` over pixels, a difference
    across the border counting as 0; ``quadratic`` ``mean dx² + mean dy²``. ``reduce="sum"`` sums instead;
    ``smoothing`` s takes ``√(d² + s²) − s`` for ``|d|`` of the anisotropic kind, which a line search can follow;
    ``periodic`` also compares the last row and column with the first. An axis of one pixel contributes 0, and records
    that are no images have no neighbours at all: the prior is then flat, and an attack made for images runs on tables.

    Weights are NOT comparable between kinds and reductions: ``1e-4*tv()`` is the prior of inverting gradients,
    ``1.0*tv(kind="quadratic", periodic=True, reduce="sum")`` that of the Bayes code (its paper says "anisotropic").

    References:
        Rudin, Osher, Fatemi, Nonlinear Total Variation Based Noise Removal Algorithms, 1992 (isotropic).
        Geiping et al., Inverting Gradients, 2020. https://arxiv.org/abs/2003.14053
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022. https://arxiv.org/abs/2111.04706
    """

    kind: Kind = "anisotropic"
    periodic: bool = False
    reduce: Reduce = "mean"
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.choice(self.kind, "kind", "tv", get_args(Kind))
            guards.choice(self.reduce, "reduce", "tv", get_args(Reduce))
            guards.flag(self.periodic, "periodic", "tv")
            guards.non_negative(self.smoothing, "smoothing", "tv")

    def __call__(self, candidate: Candidate) -> Tensor:
        images = candidate.inputs
        if images.ndim != 5:
            return images.flatten(1).sum(1) * 0
        if self.kind == "isotropic":
            dx, dy = (_differences(images, axis, self.periodic, pad=True) for axis in (-1, -2))
            return -self._total((dx.square() + dy.square() + SMOOTHING).sqrt())
        size = self._absolute if self.kind == "anisotropic" else torch.square
        return -sum(
            (self._total(size(_differences(images, axis, self.periodic))) for axis in (-1, -2)),
            start=images.new_zeros(len(images)),
        )

    def _absolute(self, difference: Tensor) -> Tensor:
        if not self.smoothing:
            return difference.abs()
        return (difference.square() + self.smoothing**2).sqrt() - self.smoothing

    def _total(self, values: Tensor) -> Tensor:
        flat = values.flatten(1)
        # an axis of one pixel has no differences: an empty mean would be NaN
        return flat.mean(1) if self.reduce == "mean" and flat.shape[1] else flat.sum(1)


def _differences(images: Tensor, axis: int, periodic: bool, *, pad: bool = False) -> Tensor:
    if periodic:
        return images.roll(-1, axis) - images
    return images.diff(dim=axis, append=images.narrow(axis, -1, 1) if pad else None)
