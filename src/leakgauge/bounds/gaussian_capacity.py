"""Bayes capacity of Gaussian noise on a clipped update, exact for p from 1 to 10⁹, in a fraction of a millisecond.

An update u in the ball ``‖u‖₂ ≤ R`` of ``R^p``, observed as ``y = u + σ z``. With ``a = R/σ`` the capacity is

    C(p, a) = ∫ sup_u φ_σ(y − u) dy = E[(T + a)^p] / E[T^p],        P(T > t) = exp(−t²/2),

a ratio of moments of a Rayleigh variable: the set of y at distance at most tσ from the ball is a ball of radius
``R + tσ``, and the density falls with the distance. The paper's theorem is this one expanded by the binomial
formula, a sum of p terms. As one integral, ``∫ t e^{−t²/2} (t + a)^p dt`` has a log-concave integrand whose
curvature lies in [1, 3] at every p and a: 96 Gauss-Legendre nodes around its mode are exact to rounding, and what
is left is to subtract the two log modes without cancellation.

References:
    Biswas et al., Bayes' capacity as a measure for reconstruction attacks in federated learning, 2024, Theorem
    III.1. https://arxiv.org/abs/2406.13569 (as printed it doubles the tail term: see ``as_printed``)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.special import Array, legendre, log1pmx, stirling_tail

_FORMULA = "Gaussian capacity"
_REACH = 9.5  # the integrand lies below exp(−9.5²/2) = 2.5e-20 of its mode beyond
_NODES = 96


def log_capacity_gaussian(dim: int, clip: float, sigma: float, *, group: int = 1, as_printed: bool = False) -> float:
    """Log Bayes capacity of an update clipped to ``‖u‖₂ ≤ clip`` with noise ``N(0, σ² I_p)``.

    ``C = a^p / (2^{p/2} Γ(p/2 + 1)) + (1 / (Γ(p/2) 2^{p/2} σ^p)) Σ_i Γ((p−i)/2) (√2 σ)^{p−i} binom(p−1, i) R^i``
    with ``a = R/σ``; p = 1 gives ``1 + 2R / (√(2π) σ)``, R = 0 gives 1. An adversary of any prior and any gain
    multiplies its success by at most C.

    Args:
        group: L, for the mean of L clipped records with noise σ/L: the radius stays R, so ``a = L R/σ``. (Of one
            record, the others known, the mean reveals a ball of radius R/L: use ``group=1`` for that.)
        as_printed: the theorem as printed, whose coefficient 2/Γ(p/2)… doubles the tail: its proof carries the ½
            that the theorem lost (at R = 0 it gives 2). Only for comparison.
    """
    return float(_log_capacities([dim], [clip], sigma, group, as_printed)[0])


@dataclass(frozen=True)
class LayerCapacity:
    """Log capacity of per-layer clipping: exact, and the two balls that contain the product of balls.

    ``product ≤ sqrt_ball ≤ sum_ball``: the second has radius ``√Σ R_l²``, the third ``Σ R_l`` (with unit radii, the
    paper's "number of layers").
    """

    product: float
    sqrt_ball: float
    sum_ball: float


def log_capacity_layers(
    dims: Sequence[int], clip: float | Sequence[float], sigma: float, *, group: int = 1, as_printed: bool = False
) -> LayerCapacity:
    """Log capacity when layer l, of dimension ``dims[l]``, is clipped separately to ``clip`` (or ``clip[l]``).

    Noise is independent across layers and each may be anywhere in its ball, so the channel is a product and its
    capacity the product of the layers'. The paper bounds it by one ball around all parameters.
    """
    if not dims:
        raise DomainError(
            "layers must be a non-empty list of dimensions, got []",
            remedy="give one dimension per layer",
            where=_FORMULA,
        )
    clips = [float(c) for c in clip] if isinstance(clip, Sequence) else [float(clip)] * len(dims)
    if len(clips) != len(dims):
        raise DomainError(
            f"clip must be one radius or one per layer ({len(dims)}), got {len(clips)}",
            remedy="give one number for all layers",
            where=_FORMULA,
        )
    radii = [*clips, math.hypot(*clips), math.fsum(clips)]
    *layers, sqrt_ball, sum_ball = _log_capacities([*dims, sum(dims), sum(dims)], radii, sigma, group, as_printed)
    return LayerCapacity(math.fsum(layers), float(sqrt_ball), float(sum_ball))


def log_capacity_box(dim: int, clip: float, sigma: float) -> float:
    """Log capacity when every entry is clipped to ``[−clip, clip]``: ``p log(1 + 2R / (√(2π) σ))``.

    A product of p channels of dimension one. The box contains the ball, so this is never below
    :func:`log_capacity_gaussian`.
    """
    p = guards.count(dim, "dim", _FORMULA)
    return p * math.log1p(ratio(clip, sigma) * math.sqrt(2 / math.pi))


def ratio(clip: float, sigma: float, group: int = 1, formula: str = _FORMULA) -> float:
    """``a = L R/σ``, checked; apart from p the capacity depends only on this ratio."""
    radius = guards.non_negative(clip, "clip", formula)
    scale = guards.positive(sigma, "sigma", formula)
    a = guards.count(group, "group", formula) * radius / scale
    if math.isinf(a):
        raise DomainError(
            f"clip/sigma must be a finite number, got {radius!r}/{scale!r}", remedy="give a larger sigma", where=formula
        )
    return a


def _log_capacities(dims: Sequence[int], clips: Sequence[float], sigma: float, group: int, as_printed: bool) -> Array:
    p = np.array([guards.count(d, "dim", _FORMULA) for d in dims], dtype=np.float64)
    a = np.array([ratio(c, sigma, group) for c in clips])
    logs = log_ball_capacity(p, a)
    if as_printed:  # 2·tail + ball = 2C − ball, with ball = a^p / (2^{p/2} Γ(p/2 + 1))
        log_ball = special.xlogy(p, a) - p / 2 * math.log(2) - special.gammaln(p / 2 + 1)
        logs += np.log1p(-np.expm1(np.minimum(log_ball - logs, 0.0)))
    return logs


def log_ball_capacity(p: Array, a: Array) -> Array:
    """``log C(p, a)``, entry by entry, for real p ≥ 0 (real, so that sums over p may become integrals)."""
    result = np.zeros(p.shape)
    some = (p > 0) & (a > 0)
    near = a * np.sqrt(p + 1) < 0.5
    for where, formula in ((some & near, _near_one), (some & ~near, _far_from_one)):
        if where.any():
            result[where] = formula(p[where], a[where])
    return result


def _far_from_one(p: Array, a: Array) -> Array:
    """With t* the mode of ``t (t + a)^p e^{−t²/2}`` and ``t* = √(p+1) (1 − d)``, the mode without shift being √(p+1):

    ``log C = p log(1 + a/t*) + (p+1) (log(1−d) + d − d²/2) + log(∫ numerator / its peak) − log(∫ denominator / …)``.
    """
    mode = shifted_mode(p, a)
    peak = np.sqrt(p + 1)
    d = (peak - mode) / peak
    low = np.maximum(-_REACH, -mode)
    x, weights = legendre(_NODES)
    u = low[:, None] + (_REACH - low)[:, None] * (x + 1) / 2
    # stationary at the mode, so the linear terms of the three logs cancel and are left out
    exponent = log1pmx(u / mode[:, None]) + p[:, None] * log1pmx(u / (mode + a)[:, None]) - u * u / 2
    numerator = np.exp(exponent) @ weights * (_REACH - low) / 2
    shift = p * np.log1p(a / mode) + (p + 1) * (log1pmx(-d) - d * d / 2)
    return np.asarray(shift + np.log(numerator) - _log_denominator(p))


def _near_one(p: Array, a: Array) -> Array:
    """``log(1 + E[(1 + a/X)^p − 1])`` with X of the chi law of p + 2 degrees: exact relatively as C → 1."""
    peak = np.sqrt(p + 1)
    low = np.maximum(-_REACH, -peak)
    x, weights = legendre(_NODES)
    u = low[:, None] + (_REACH - low)[:, None] * (x + 1) / 2
    t = peak[:, None] + u
    log_chi = (p + 1)[:, None] * log1pmx(u / peak[:, None]) - u * u / 2 - _log_denominator(p)[:, None]
    gain = p[:, None] * np.log1p(a[:, None] / t)
    small = np.expm1(np.minimum(gain, 1.0)) * np.exp(log_chi)
    large = np.exp(np.minimum(gain + log_chi, 300.0)) - np.exp(log_chi)  # where expm1 alone might overflow
    return np.log1p(np.where(gain < 1, small, large) @ weights * (_REACH - low) / 2)


def shifted_mode(p: Array, a: Array) -> Array:
    """The root t ≥ 1 of ``t − 1/t − p/(t + a) = 0``, increasing with slope in [1, 3]: Newton from above or below."""
    t = np.maximum(2 * (p + 1) / (a + np.hypot(a, 2 * np.sqrt(p + 1))), 1.0)
    for _ in range(8):
        slope = 1 + 1 / t**2 + p / (t + a) / (t + a)
        t = np.maximum(t - (t - 1 / t - p / (t + a)) / slope, 1.0)
    return np.asarray(t)


def _log_denominator(p: Array) -> Array:
    """``log(2^{p/2} Γ(p/2 + 1) / max_t t^{p+1} e^{−t²/2})``; tends to ½ log π."""
    z = p / 2
    return np.asarray(0.5 * math.log(math.pi) + 0.5 - (z + 0.5) * np.log1p(1 / (2 * z)) + stirling_tail(z))
