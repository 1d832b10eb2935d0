"""Reconstruction robustness: a ceiling on how often any adversary reconstructs a record within a threshold.

If no guess without the observation succeeds with probability above g, then an adversary who sees the release of a
mechanism succeeds with probability at most ``1 − f(g)``, where f is the trade-off function between the release and a
reference release that does not depend on the record. Conditional on the prior under which ``g = guess`` was estimated.

References:
    Hayes, Mahloujifar and Balle, Bounding Training Data Reconstruction in DP-SGD, 2023. https://arxiv.org/abs/2302.07225
    Kaissis et al., Bounding data reconstruction attacks with the hypothesis testing interpretation of differential
    privacy, 2023. https://arxiv.org/abs/2307.03928
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import optimize, special

from leakgauge import guards
from leakgauge.bounds.capacity import log_capacity_vmf, success_ceiling
from leakgauge.bounds.vmf_success import vmf_success
from leakgauge.errors import DomainError

_FORMULA = "reconstruction robustness"
_WITHOUT = "the same release with the record's contribution removed (zero update)"


@dataclass(frozen=True)
class Ceiling:
    """A proven upper limit on P(success), the best guess it starts from, and what it is conditional on."""

    value: float
    guess: float
    bound: str
    reference: str
    rounds: int = 1


def gaussian_ceiling(guess: float, *, clip: float, sigma: float, rounds: int = 1) -> Ceiling:
    """``Φ(Φ⁻¹(g) + μ)`` with ``μ = √T R/σ``: Gaussian noise on an update (or record) clipped to R, over T rounds.

    The relation is add-or-remove: the reference is a zero contribution, at most R away. No subsampling is assumed:
    the ceiling holds for a record that takes part in all T rounds, however later rounds depend on earlier releases.
    """
    mu = guards.non_negative(clip, "clip", _FORMULA) / guards.positive(sigma, "sigma", _FORMULA)
    return mu_ceiling(guess, mu, rounds=rounds)


def mu_ceiling(guess: float, mu: float, *, rounds: int = 1) -> Ceiling:
    """``Φ(Φ⁻¹(g) + μ√T)`` for T rounds of a μ-GDP mechanism (add-or-remove)."""
    g = guards.probability(guess, "guess", _FORMULA)
    total = guards.non_negative(mu, "mu", _FORMULA) * math.sqrt(guards.count(rounds, "rounds", _FORMULA))
    value = g if g in (0.0, 1.0) else float(special.ndtr(special.ndtri(g) + total))
    return Ceiling(value, g, f"gaussian, μ = {total:.6g}", _WITHOUT, rounds)


def epsilon_ceiling(guess: float, epsilon: float, delta: float = 0.0) -> Ceiling:
    """``min(e^ε g + δ, 1 − e^{−ε}(1 − δ − g))`` for an (ε, δ)-DP mechanism (its neighbouring relation applies)."""
    g = guards.probability(guess, "guess", _FORMULA)
    e = guards.non_negative(epsilon, "epsilon", _FORMULA)
    d = guards.inside(delta, "delta", _FORMULA, 0.0, 1.0, closed_low=True)
    first = math.exp(min(e + math.log(g), 0.0)) + d if g > 0 else d
    value = min(1.0, first, 1 - math.exp(-e) * max(0.0, 1 - d - g))
    return Ceiling(value, g, f"(ε, δ) = ({e:.6g}, {d:g})", "the neighbouring data set without the unit")


def tradeoff_ceiling(guess: float, tradeoff: Callable[[float], float], *, name: str = "f-DP") -> Ceiling:
    """``1 − f(g)`` for any trade-off function f: the smallest type II error of a test of level g."""
    g = guards.probability(guess, "guess", _FORMULA)
    error = float(tradeoff(g))
    guards.inside(error, "the trade-off at the guess", _FORMULA, 0.0, 1 - g + 1e-12, closed_low=True, closed_high=True)
    return Ceiling(1 - error, g, name, "the alternative of the trade-off function")


def profile_ceiling(guess: float, delta_of: Callable[[float], float], epsilons: Sequence[float]) -> Ceiling:
    """The best of :func:`epsilon_ceiling` along a privacy profile δ(ε): every point of it is a valid bound."""
    if not epsilons:
        raise DomainError("epsilons must be a non-empty list, got []", remedy="give one ε per round", where=_FORMULA)
    return min((epsilon_ceiling(guess, e, delta_of(e)) for e in epsilons), key=lambda c: c.value)


def capacity_ceiling(guess: float, log_capacity: float) -> Ceiling:
    """``min(1, C g)`` from the Bayes capacity; for composed rounds give the composed capacity."""
    value = success_ceiling(log_capacity, guess)
    return Ceiling(value, float(guess), f"capacity, log C = {log_capacity:.6g}", "none: over all priors and gains")


def vmf_ceiling(guess: float, *, dim: int, concentration: float) -> Ceiling:
    """The exact trade-off of von Mises-Fisher noise against the uniform law, at g; one observation.

    The best test of level g accepts a cap around the mean; the ceiling is the mass that the noise puts on it.
    """
    value = vmf_success(guards.probability(guess, "guess", _FORMULA), dim, concentration)
    return Ceiling(value, float(guess), f"von Mises-Fisher, concentration {concentration:.6g}", "the uniform direction")


def vmf_rounds(guess: float, dim: int, concentration: float, rounds: int) -> Ceiling:
    """T observations of von Mises-Fisher noise with concentration c: the smallest of three limits.

    Against the uniform direction the density's ratio lies in ``[C e^{−2c}, C]``, whatever was released before:
    ``C^T g`` and ``1 − e^{T(log C − 2c)} (1 − g)``. By Hölder's inequality, for every α > 1,
    ``g^{1−1/α} E[ratio^α]^{1/α}``, and ``E[ratio^α] = C(c)^α / C(αc)`` in each round, the same around every direction.
    """
    g = guards.probability(guess, "guess", _FORMULA)
    log_c = log_capacity_vmf(dim, concentration)
    count = guards.count(rounds, "rounds", _FORMULA)
    limits = [
        success_ceiling(count * max(log_c, 0.0), g),
        1 - math.exp(count * (log_c - 2 * concentration)) * (1 - g),
    ]
    if g > 0:

        def log_limit(log_excess: float) -> float:
            alpha = 1 + math.exp(log_excess)
            moment = alpha * log_c - log_capacity_vmf(dim, alpha * concentration)
            return (1 - 1 / alpha) * math.log(g) + count * moment / alpha

        # every α gives a valid limit: where the search ends matters for tightness only
        optimum = optimize.minimize_scalar(log_limit, bounds=(-12.0, 12.0), method="bounded")
        limits.append(math.exp(min(log_limit(float(optimum.x)), 0.0)))
    named = f"von Mises-Fisher, concentration {concentration:.6g}"
    return Ceiling(max(min(limits), g), g, named, "the uniform direction", count)
