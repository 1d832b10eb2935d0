"""The von Mises-Fisher distribution in numbers: peak, normaliser, mean length. No rooms but errors below it.

On the sphere ``S^{p−1}`` of ``R^p``, with mean direction m and concentration κ,

    f(y | m) = exp(κ ⟨m, y⟩) κ^ν / ((2π)^{ν+1} I_ν(κ)),        ν = p/2 − 1.

Everything here is derived from its **log peak**, the log of the ratio of f at its mode to the uniform density:

    log C(p, κ) = κ − log ₀F₁(; p/2; κ²/4).

It is the log Bayes capacity of the mechanism, and ``log f(y | m) = log C − κ (1 − ⟨m, y⟩) − log A(S^{p−1})``
has no large terms left. Two regimes cover every p and κ: the power series of ₀F₁ (all terms positive), and
Debye's uniform expansion written in ``s = √(ν² + κ²)``, from which the parts that cancel were removed by hand.

References:
    DLMF §10.41 (Debye, U_k and V_k). https://dlmf.nist.gov/10.41
    Weggenmann and Kerschbaum, Differential Privacy for Directional Data, 2021.
    https://doi.org/10.1145/3460120.3484734
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy import special

from leakgauge import guards
from leakgauge.special import log_sphere_area, stirling_tail

_FORMULA = "von Mises-Fisher"
_DEBYE_FROM = 40.0  # with 14 orders, U_14 / s^14 is below 1e-15 from here on
_ORDERS = 14


def log_peak(dim: int, kappa: float) -> float:
    """``log C(p, κ) = κ − log ₀F₁(; p/2; κ²/4)``: how far the mode stands above uniform.

    In Debye's regime, with ``e = s − ν``, it is
    ``ν log(1 + e/2ν) + κν(s + κ + ν) / ((s + κ)(s + ν)) + ½ log(s/ν) − μ(ν) − log Σ_k u_k(ν²/s²) / s^k``:
    every term that grows is positive, so nothing cancels.
    """
    p, k = _arguments(dim, kappa)
    if p == 1:  # two points, ±m
        return -math.log1p(math.expm1(-2 * k) / 2)
    nu, s = p / 2 - 1, math.hypot(p / 2 - 1, k)
    if _series_is_short(nu, k):
        return k - math.log1p(_series(p / 2, k))
    sums = math.log(_debye_sums(nu, s)[0])
    if nu < 15:  # Stirling's formula is no help for a small order
        log_gamma = nu * math.log((nu + s) / 2) - math.lgamma(nu + 1)
        return log_gamma - nu * (nu / (s + k)) + 0.5 * math.log(2 * math.pi * s) - sums
    e = k * (k / (s + nu))
    grows = k * (nu / (s + nu)) * (1 + nu / (s + k))
    return nu * math.log1p(e / (2 * nu)) + grows + 0.5 * math.log1p(e / nu) - stirling_tail(nu) - sums


def mean_resultant(dim: int, kappa: float) -> float:
    """``E⟨m, y⟩ = I_{p/2}(κ) / I_{p/2−1}(κ)``, the length of the mean of draws; in [0, 1)."""
    p, k = _arguments(dim, kappa)
    if p == 1:
        return math.tanh(k)
    nu, s = p / 2 - 1, math.hypot(p / 2 - 1, k)
    if _series_is_short(nu, k):
        return k / p * (1 + _series(p / 2 + 1, k)) / (1 + _series(p / 2, k))
    sum_u, sum_w = _debye_sums(nu, s)
    return k / (s + nu) - k / s * sum_w / sum_u


def log_normaliser(dim: int, kappa: float) -> float:
    """``log ∫ exp(κ⟨m, y⟩) dy`` over the sphere: ``(2π)^{ν+1} I_ν(κ) / κ^ν``."""
    return kappa - log_peak(dim, kappa) + log_sphere_area(dim)


def log_density(cosine: float, dim: int, kappa: float) -> float:
    """``log f(y | m)`` at ``⟨m, y⟩ = cosine``, with respect to the area of the sphere."""
    guards.inside(cosine, "cosine", _FORMULA, -1.0, 1.0, closed_low=True, closed_high=True)
    return log_peak(dim, kappa) - kappa * (1 - cosine) - log_sphere_area(dim)


def uniform_cap(dim: int, mass: float) -> float:
    """The angle θ with ``P(angle to m ≤ θ) = mass`` for y uniform on the sphere (p ≥ 2).

    ``sin²(θ/2)`` has the law Beta((p−1)/2, (p−1)/2); as an angle, a tiny cap keeps its digits.
    """
    guards.count(dim, "dim", _FORMULA, least=2)
    share = guards.probability(mass, "mass", _FORMULA)
    if share > 0.5:
        return math.pi - uniform_cap(dim, 1 - share)
    half = (dim - 1) / 2
    return 2 * math.asin(math.sqrt(float(special.betaincinv(half, half, share))))


def _arguments(dim: int, kappa: float) -> tuple[int, float]:
    return guards.count(dim, "dim", _FORMULA), guards.non_negative(kappa, "kappa", _FORMULA)


def _series_is_short(nu: float, kappa: float) -> bool:
    return math.hypot(nu, kappa) < _DEBYE_FROM or kappa / 2 * (kappa / 2) <= nu + 1


def _series(b: float, kappa: float) -> float:
    """``₀F₁(; b; κ²/4) − 1``; the terms are positive, and fewer than 100 where this is used."""
    x, term, total, k = kappa / 2 * (kappa / 2), 1.0, 0.0, 0
    while True:
        k += 1
        term *= x / (k * (b + k - 1))
        total += term
        if term <= 1e-17 * total:
            return total


def _debye_sums(nu: float, s: float) -> tuple[float, float]:
    """``Σ_{k≥0} U_k(t)/ν^k`` and ``Σ_{k≥1} (½ t U_{k−1} + t² U'_{k−1}) / ν^k`` at ``t = ν/s``.

    As ``U_k(t) = t^k u_k(t²)`` they are power series in 1/s, and stay finite as ν → 0 (there they are
    Hankel's expansion). The second is ``Σ (U_k − V_k)/(1 − t²)``, the correction of the Bessel ratio.
    """
    t2 = (nu / s) ** 2
    powers = t2 ** np.arange(_ORDERS + 1)
    inverse = s ** -np.arange(_ORDERS + 1.0)
    u, w = _debye_tables()
    return float(inverse @ (u @ powers)), float(inverse @ (w @ powers))


@lru_cache(maxsize=1)
def _debye_tables() -> tuple[np.ndarray, np.ndarray]:
    """Row k: the coefficients in t² of ``t^{−k} U_k(t)``, and of ``t^{−k} (½ t U_{k−1} + t² U'_{k−1})``.

    ``U_{k+1}(t) = ½ t² (1 − t²) U_k'(t) + ⅛ ∫₀^t (1 − 5x²) U_k(x) dx``; a term ``c t^m`` of U_k gives
    ``c (m/2 + 1/(8(m + 1))) t^{m+1} − c (m/2 + 5/(8(m + 3))) t^{m+3}``.
    """
    size = _ORDERS + 1
    u = [[Fraction(0)] * size for _ in range(size)]
    w = [[Fraction(0)] * size for _ in range(size)]
    u[0][0] = Fraction(1)
    for k in range(_ORDERS):
        for j in range(k + 1):
            c, m = u[k][j], k + 2 * j
            u[k + 1][j] += c * (Fraction(m, 2) + Fraction(1, 8 * (m + 1)))
            u[k + 1][j + 1] -= c * (Fraction(m, 2) + Fraction(5, 8 * (m + 3)))
            w[k + 1][j] += c * (Fraction(1, 2) + m)
    return np.array(u, dtype=np.float64), np.array(w, dtype=np.float64)
