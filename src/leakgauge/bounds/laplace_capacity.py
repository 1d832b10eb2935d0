"""Bayes capacity of Laplace noise on an update clipped in L1: a truncated exponential series.

An update u with ``‖u‖₁ ≤ R`` in ``R^p``, observed as ``y = u + b e`` with independent Laplace entries. The most likely
u for an observation is its nearest point in L1, at distance ``(‖y‖₁ − R)₊``, so with ``a = R/b``

    C = (2b)^{−p} ∫ exp(−(‖y‖₁ − R)₊ / b) dy.

The L1 ball of radius r has volume ``(2r)^p / p!``; split at ``‖y‖₁ = R`` and integrate over shells:

    C = a^p/p! + ∫_a^∞ r^{p−1}/(p−1)! e^{−(r−a)} dr = a^p/p! + Σ_{k<p} a^k/k! = Σ_{k≤p} a^k / k!.

So ``C = e^a P(Poisson(a) ≤ p)``: 1 + a in one dimension, and never above ``e^{R/b}``, which it reaches as p grows.
It is also ``E[(T + a)^p] / E[T^p]`` with T exponential, the twin of the Gaussian form. (This derivation is ours; the
paper treats Gaussian and von Mises-Fisher noise.)
"""

from __future__ import annotations

import math

from scipy import special

from leakgauge import guards
from leakgauge.bounds.gaussian_capacity import ratio
from leakgauge.special import stirling_tail

_FORMULA = "Laplace capacity"


def log_capacity_laplace(dim: int, clip: float, scale: float) -> float:
    """Log Bayes capacity of an update with ``‖u‖₁ ≤ clip`` and independent Laplace noise of scale b.

    ``log Σ_{k=0}^p a^k/k! = a + log Q(p + 1, a)``, with ``a = clip/scale`` and Q the regularised upper incomplete
    gamma function; beyond its underflow, Legendre's continued fraction.
    """
    p = guards.count(dim, "dim", _FORMULA)
    guards.positive(scale, "scale", _FORMULA)
    a = ratio(clip, scale, formula=_FORMULA)
    if a <= p:
        return a + math.log1p(-float(special.gammainc(p + 1.0, a)))
    upper = float(special.gammaincc(p + 1.0, a))
    if upper > 1e-280:
        return a + math.log(upper)
    log_last = p * (math.log(a / p) + 1) - 0.5 * math.log(2 * math.pi * p) - stirling_tail(float(p))
    return log_last + math.log(_tail_over_last(p, a))


def _tail_over_last(p: int, a: float, terms: int = 120) -> float:
    """``Σ_{k≤p} a^k/k!`` over its last term, ``a e^a a^{−p−1} Γ(p + 1, a)``, by Legendre's continued fraction.

    Used only for ``a − p > 30 √p`` or so, where it converges within a few dozen terms.
    """
    s = p + 1
    value = a + 2 * terms + 1 - s
    for n in range(terms, 0, -1):
        value = a + 2 * n - 1 - s - n * (n - s) / value
    return a / value
