"""Additive noise: Gaussian and Laplace, with their densities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.update.base import EntryDensity, UpdatePart, draw
from leakgauge.defenses.update.promises import GaussianNoise, LaplaceNoise
from leakgauge.errors import NoDensityError
from leakgauge.expr import register
from leakgauge.types import Context, Known, Release, Tree, Updates
from leakgauge.updates import absolute_residual, squared_residual, trees


@register("defense", "gaussian")
@dataclass(frozen=True, repr=False)
class Gaussian(UpdatePart):
    """Add Gaussian noise to every entry.

    ``o = u + σ ε, ε ~ N(0, I)``, with ``σ = std``; ``log p(o | u) = −‖o − u‖² / 2σ² − P log(σ √2π)``.
    Without clipping before it this is not differentially private.

    References:
        Abadi et al., Deep Learning with Differential Privacy, 2016. https://arxiv.org/abs/1607.00133
    """

    std: float
    post_processing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_scale("gaussian", "std", self.std)

    @property
    def noise_law(self) -> GaussianNoise | None:
        return GaussianNoise(self.std) if self.std > 0 else None

    def with_noise(self, size: float) -> Gaussian:
        return replace(self, std=size)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        if self.std == 0:
            return Release(dict(update))
        return Release(trees.mapped(lambda u: u + self.std * draw(u, generator), update))

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        _check_density(self, self.std)
        entries = sum(observed[name][0].numel() for name in update.names)
        constant = entries * math.log(self.std * math.sqrt(2 * math.pi))
        return -update.distance(observed).sum(1) / (2 * self.std**2) - constant

    def entry_density(self) -> EntryDensity:
        _check_density(self, self.std)
        s, constant = self.std, math.log(self.std * math.sqrt(2 * math.pi))
        return EntryDensity(
            log=squared_residual.scaled(-1 / (2 * s * s), -constant),
            log_mass=lambda u, low, high: _log_difference(_log_cdf_normal, _reflected((low - u) / s, (high - u) / s)),
            log_hat=lambda u, o, below, above: _log_hat(_NORMAL, (u - o) / s, below / s, above / s),
        )

    @classmethod
    def neutral(cls) -> Self:
        return cls(std=0.0)


@register("defense", "laplace")
@dataclass(frozen=True, repr=False)
class Laplace(UpdatePart):
    """Add Laplace noise to every entry.

    ``o = u + b ε``, with ``b = scale`` and ``p(ε) = exp(−|ε|)/2``; ``log p(o | u) = −‖o − u‖₁ / b − P log 2b``.

    References:
        Dwork et al., Calibrating Noise to Sensitivity in Private Data Analysis, 2006.
        https://doi.org/10.1007/11681878_14
    """

    scale: float
    post_processing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_scale("laplace", "scale", self.scale)

    @property
    def noise_law(self) -> LaplaceNoise | None:
        return LaplaceNoise(self.scale) if self.scale > 0 else None

    def with_noise(self, size: float) -> Laplace:
        return replace(self, scale=size)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        if self.scale == 0:
            return Release(dict(update))
        return Release(trees.mapped(lambda u: u + self.scale * _laplace(u, generator), update))

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        return self.entry_density()(observed, update)

    def entry_density(self) -> EntryDensity:
        _check_density(self, self.scale)
        b, constant = self.scale, math.log(2 * self.scale)
        return EntryDensity(
            log=absolute_residual.scaled(-1 / b, -constant),
            log_mass=lambda u, low, high: _log_difference(_log_cdf_laplace, _reflected((low - u) / b, (high - u) / b)),
            log_hat=lambda u, o, below, above: _log_hat(_LAPLACE, (u - o) / b, below / b, above / b),
        )

    @classmethod
    def neutral(cls) -> Self:
        return cls(scale=0.0)


def _laplace(like: Tensor, generator: Generator) -> Tensor:
    # a difference of two unit exponentials is Laplace, and needs no log of zero
    first, second = (-torch.log1p(-draw(like, generator, torch.rand)) for _ in range(2))
    return first - second


def _log_cdf_normal(z: Tensor) -> Tensor:
    # far left the slope of torch's log_ndtr is exp of a difference of huge numbers, wrong by factors in float32
    left = z.clamp(max=-1.0)
    tail = torch.log(torch.special.erfcx(-math.sqrt(0.5) * left) / 2) - left.square() / 2
    return torch.where(z < -1, tail, torch.special.log_ndtr(z.clamp(min=-1.0)))


def _log_cdf_laplace(z: Tensor) -> Tensor:
    return torch.where(z < 0, z - math.log(2), torch.log1p(-torch.exp(-z.clamp(min=0)) / 2))


def _reflected(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The interval mirrored into the left tail, where the log CDF keeps its precision."""
    right = low > 0
    return torch.where(right, -high, low), torch.where(right, -low, high)


def _log_difference(log_cdf: Callable[[Tensor], Tensor], interval: tuple[Tensor, Tensor]) -> Tensor:
    # an infinite end has a probability, but no slope that can be computed
    low, high = (
        torch.where(end.isinf(), _at_infinity(end), log_cdf(end.nan_to_num(0.0, 0.0, 0.0))) for end in interval
    )
    gap = (low - high).clamp(max=-1e-12)
    return high + torch.log(-torch.expm1(gap))


def _at_infinity(end: Tensor) -> Tensor:
    return torch.where(end > 0, 0.0, -math.inf).to(end)


Ramp = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
"""``E (ε − x)₊ = f(x) e^{w(x)}`` for ``x ≥ 0``, as f and w: the tail of the second integral of a symmetric density."""


def _normal_ramp(x: Tensor) -> Tensor:
    """``(φ(x) − x Φ(−x)) e^{x²/2}``; far out by its series, since the difference cancels."""
    near, far = x.clamp(max=1e3), x.clamp(min=1e3)
    exact = 1 / math.sqrt(2 * math.pi) - near / 2 * torch.special.erfcx(math.sqrt(0.5) * near)
    return torch.where(x > 1e3, (1 - 3 / far.square()) / far.square() / math.sqrt(2 * math.pi), exact)


_NORMAL: Ramp = (_normal_ramp, lambda x: -x.square() / 2)
_LAPLACE: Ramp = (lambda x: torch.full_like(x, 0.5), torch.neg)


def _log_hat(ramp: Ramp, z: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """``log E hat(z + ε)``, where the hat is 1 at 0 and reaches 0 at ``−below`` and ``above``.

    With ``R(z) = E (z + ε)₊`` it is ``[R(z + b) − R(z)] / b − [R(z) − R(z − a)] / a``. Mirrored to ``z ≤ 0``, in
    float64, and with the largest term taken out, so that a hopeless candidate still has a slope.
    """
    tail, weight = ramp
    right = z > 0
    flipped, b, a = (t.double() for t in (-z.abs(), torch.where(right, above, below), torch.where(right, below, above)))
    b, a = b.expand_as(flipped), a.expand_as(flipped)
    plateau = b.isinf()
    b = torch.where(plateau, 1.0, b)
    steps = a.nan_to_num(posinf=1.0)
    top = torch.where(plateau, 0.0, weight((flipped + b).clamp(max=0).neg()))

    def risen(x: Tensor) -> Tensor:
        return x.clamp(min=0) + tail(x.abs()) * torch.exp(weight(x.abs()) - top)

    rise = torch.where(plateau, 1.0, (risen(flipped + b) - risen(flipped)) / b)
    fall = torch.where(a.isinf(), 0.0, (risen(flipped) - risen(flipped - steps)) / steps)
    log_mean: Tensor = top + torch.log((rise - fall).clamp(min=torch.finfo(torch.float64).tiny))
    return log_mean.to(z.dtype)


def _check_scale(part: str, name: str, value: float) -> None:
    guards.non_negative(value, name, part)


def _check_density(part: UpdatePart, scale: float) -> None:
    if scale == 0:
        raise NoDensityError(f"{part!r} adds no noise", remedy="use a positive scale, or a matching loss")
