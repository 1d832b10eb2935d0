"""Differential privacy of noise: ε, δ, μ and σ. Every result states the unit it protects.

``sigma`` is the noise multiplier: the standard deviation over the clipping norm. Whether "one unit" is a **record**
(clipped per example, DP-SGD) or a **client** (its whole update clipped) depends on what was clipped; the formulas are
the same. Adding or removing a unit changes the sum by at most one clipping norm, replacing it by two.

References:
    Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, 2018. https://arxiv.org/abs/1805.06530
    Dong, Roth and Su, Gaussian Differential Privacy, 2022. https://arxiv.org/abs/1905.02383
    Weggenmann and Kerschbaum, Differential Privacy for Directional Data, 2021.
    https://doi.org/10.1145/3460120.3484734
"""

from __future__ import annotations

import math
from typing import Literal

from scipy import optimize, special

from leakgauge import guards

Relation = Literal["add-or-remove", "replace"]

_EXACT = "exact Gaussian mechanism"


def gaussian_delta(mu: float, epsilon: float) -> float:
    """``δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)``, the exact privacy profile of μ-GDP.

    For one release μ is sensitivity over standard deviation.
    """
    guards.positive(mu, "mu", _EXACT)
    guards.non_negative(epsilon, "epsilon", _EXACT)
    return math.exp(_log_delta(mu, epsilon))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε for which μ-GDP implies (ε, δ); 0 where δ alone is enough."""
    m = guards.positive(mu, "mu", _EXACT)
    log_d = math.log(guards.inside(delta, "delta", _EXACT, 0.0, 1.0))
    if _log_delta(m, 0.0) <= log_d:
        return 0.0
    # the privacy loss is N(μ²/2, μ²): δ(ε) ≤ P(loss > ε), below δ at this end
    high = m * m / 2 + m * math.sqrt(-2 * log_d) + 1e-12
    if m > 1e7:  # rounding drowns δ(ε) there; the upper end is ε but for a share of 2 √(−2 log δ) / μ
        return high
    # a root that is hundreds of powers of two below the upper end takes as many halvings
    return float(optimize.brentq(lambda e: _log_delta(m, e) - log_d, 0.0, high, xtol=1e-300, rtol=1e-15, maxiter=5000))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ for which μ-GDP implies (ε, δ): the inverse of :func:`gaussian_epsilon` in μ."""
    e = guards.non_negative(epsilon, "epsilon", _EXACT)
    log_d = math.log(guards.inside(delta, "delta", _EXACT, 0.0, 1.0))
    if e > 1e14:  # the inverse of what gaussian_epsilon returns there, below the exact μ
        tail = math.sqrt(-2 * log_d)
        return math.sqrt(tail * tail + 2 * e) - tail
    low = high = 1.0
    while _log_delta(low, e) > log_d:
        low /= 2
    while _log_delta(high, e) < log_d:
        high *= 2
    return float(optimize.brentq(lambda m: _log_delta(m, e) - log_d, low, high, xtol=1e-300, rtol=1e-15, maxiter=5000))


def classical_sigma(epsilon: float, delta: float) -> float:
    """``σ = √(2 log(1.25/δ)) / ε``: the textbook multiplier, proven only for ε in (0, 1) and never tight.

    References:
        Dwork and Roth, The Algorithmic Foundations of Differential Privacy, 2014, Theorem A.1.
    """
    formula = "classical Gaussian mechanism"
    e = guards.inside(epsilon, "epsilon", formula, 0.0, 1.0)
    return math.sqrt(2 * math.log(1.25 / guards.inside(delta, "delta", formula, 0.0, 1.0))) / e


def mu_of_noise(sigma: float, *, steps: int = 1, relation: Relation = "add-or-remove") -> float:
    """μ of ``steps`` Gaussian releases with multiplier σ, not subsampled: ``s √T / σ``, s = 1 or, to replace, 2."""
    count = guards.count(steps, "steps", _EXACT)
    return clipping_norms(relation) * math.sqrt(count) / guards.positive(sigma, "sigma", _EXACT)


def clipping_norms(relation: Relation) -> float:
    """The sensitivity in clipping norms: how far apart the sums of neighbouring data sets can be."""
    return 2.0 if relation == "replace" else 1.0


def vmf_epsilon(kappa: float, distance: float = 2.0) -> float:
    """Metric privacy of von Mises-Fisher noise: ``ε = κ ‖x − x'‖₂`` between unit vectors (at most 2κ).

    ``log f(y|x)/f(y|x') = κ⟨y, x − x'⟩ ≤ κ‖x − x'‖₂``, tight at y along x − x'; so also at most κ times the angle.
    δ = 0. The unit is whatever was scaled to the sphere; one observation.
    """
    formula = "metric privacy of von Mises-Fisher noise"
    d = guards.inside(distance, "distance", formula, 0.0, 2.0, closed_low=True, closed_high=True)
    return guards.non_negative(kappa, "kappa", formula) * d


def laplace_epsilon(clip: float, scale: float, *, relation: Relation = "add-or-remove") -> float:
    """``ε = s R/b`` of Laplace noise of scale b on a sum clipped to ``‖u‖₁ ≤ R``; δ = 0."""
    formula = "Laplace mechanism"
    return (
        clipping_norms(relation) * guards.non_negative(clip, "clip", formula) / guards.positive(scale, "scale", formula)
    )


def _log_delta(mu: float, epsilon: float) -> float:
    """``log δ(ε)``. In the tail both terms share ``exp(−A²/2)``, and erfcx keeps their difference."""
    upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    if upper > 0:
        log_upper = float(special.log_ndtr(upper))
        share = math.exp(epsilon + float(special.log_ndtr(lower)) - log_upper)
        return log_upper + (math.log1p(-share) if share < 1 else -math.inf)
    difference = float(special.erfcx(-upper / math.sqrt(2)) - special.erfcx(-lower / math.sqrt(2)))
    return -upper * upper / 2 + math.log(difference / 2) if difference > 0 else -math.inf
