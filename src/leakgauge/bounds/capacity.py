"""Bayes capacity beyond one Gaussian ball: von Mises-Fisher, rounds, and what a capacity says about success.

The capacity of a channel, ``C = ∫ sup_x p(y | x) dy``, is the largest factor by which an observation multiplies an
adversary's success, over all priors and all non-negative gains. Pre- and post-processing never increase it.

References:
    Alvim et al., The Science of Quantitative Information Flow, 2020, chapters 5-7.
    Biswas et al., Bayes' capacity as a measure for reconstruction attacks in federated learning, 2024.
    https://arxiv.org/abs/2406.13569
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from leakgauge import guards
from leakgauge.defenses.update.vmf_math import log_peak


def log_capacity_vmf(dim: int, kappa: float) -> float:
    """Log Bayes capacity of von Mises-Fisher noise on an update scaled to the unit sphere of ``R^p``.

    ``C = 2 κ^{p/2−1} e^κ / (Γ(p/2) 2^{p/2} I_{p/2−1}(κ))``: the peak of the density over the uniform one. p = 3 gives
    ``2κ / (1 − e^{−2κ})``. Every unit vector is taken as a possible update; the norm is not released at all.

    References:
        Biswas et al., 2024, Theorem IV.1 (right as printed).
    """
    return log_peak(dim, kappa)


def compose(log_capacities: Iterable[float]) -> float:
    """Upper bound on the log capacity of several observations of one secret: the sum.

    ``sup_x Π_t f_t(y_t | x, y_{<t}) ≤ Π_t sup_x f_t(y_t | x, y_{<t})``, integrated from the last round to the first:
    so it also holds when a later round depends on earlier releases (as in federated training), as long as each round's
    capacity holds for every history. Equality for independent secrets (a product channel).
    """
    logs = [guards.non_negative(c, "log capacity", "composition of capacities") for c in log_capacities]
    return math.fsum(logs)


def repeat(log_capacity: float, rounds: int) -> float:
    """:func:`compose` of ``rounds`` equal rounds: ``T log C``.

    If the update is the same in all rounds (a frozen model), Gaussian noise averages out: the exact capacity is that of
    one round with noise ``σ/√T``, which grows only like ``√T`` where C is small.
    """
    return guards.count(rounds, "rounds", "composition of capacities", least=0) * compose([log_capacity])


def success_ceiling(log_capacity: float, best_guess: float) -> float:
    """``min(1, C g)``: no adversary succeeds more often, if no guess without the observation exceeds g."""
    g = guards.probability(best_guess, "best_guess", "capacity ceiling")
    log_c = guards.non_negative(log_capacity, "log capacity", "capacity ceiling")
    return min(1.0, math.exp(min(log_c + math.log(g), 0.0))) if g > 0 else 0.0
