"""Priors that are proper densities, and the uniform prior."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi

from torch import Tensor

from leakgauge import guards
from leakgauge.expr import register
from leakgauge.priors.base import PriorPart, along
from leakgauge.types import Candidate


@register("prior", "uniform")
@dataclass(frozen=True, repr=False)
class Uniform(PriorPart):
    """Every x is as likely as any other: ``log p(x) = 0``, up to a constant.

    The adversary then maximises the likelihood alone. Improper on all of space; on the box of images the
    constant is exactly 0.
    """

    def __call__(self, candidate: Candidate) -> Tensor:
        # a sum of no entries: 0 even at NaN, and tied to the inputs, so that its gradient is zeros, not an error
        return candidate.inputs.flatten(1)[:, :0].sum(1)


@register("prior", "gaussian_prior")
@dataclass(frozen=True, repr=False)
class GaussianPrior(PriorPart):
    """Independent normal entries, normalised: ``Σ_e −(x_e − mean)²/(2 std²) − log(std √(2π))``.

    The sum runs over all entries of all B records of a problem. It is the exact prior of synthetic Gaussian records,
    and a crude one for images, because it ignores neighbouring pixels. The defense ``gaussian`` is unrelated.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Figure 4. https://arxiv.org/abs/2111.04706
    """

    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.finite(self.mean, "mean", "gaussian_prior")
            guards.positive(self.std, "std", "gaussian_prior")

    def __call__(self, candidate: Candidate) -> Tensor:
        x = candidate.inputs
        mean, std = along(self.mean, x), along(self.std, x)
        scaled = ((x - mean) / std).flatten(1)
        return -0.5 * scaled.square().sum(1) - scaled.shape[1] * (std.flatten().log() + 0.5 * log(2 * pi))


@register("prior", "laplace_prior")
@dataclass(frozen=True, repr=False)
class LaplacePrior(PriorPart):
    """Independent Laplace entries, normalised: ``Σ_e −|x_e − mean|/scale − log(2 scale)``.

    The sum runs over all entries of all B records of a problem. It has heavier tails than the normal and a cusp at the
    mean, where the gradient is taken as 0. The defense ``laplace`` is unrelated.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Figure 4. https://arxiv.org/abs/2111.04706
    """

    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.finite(self.mean, "mean", "laplace_prior")
            guards.positive(self.scale, "scale", "laplace_prior")

    def __call__(self, candidate: Candidate) -> Tensor:
        x = candidate.inputs
        mean, scale = along(self.mean, x), along(self.scale, x)
        scaled = ((x - mean) / scale).flatten(1)
        return -scaled.abs().sum(1) - scaled.shape[1] * (2 * scale).flatten().log()
