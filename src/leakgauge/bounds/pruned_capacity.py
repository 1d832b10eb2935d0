"""Bayes capacity of Gaussian noise on a pruned update: fewer coordinates carry information.

A random mask m, drawn without looking at the update, keeps each of p coordinates with probability q; ``m ⊙ u`` gets
the noise. If the adversary knows the mask, the channel has outputs (m, y), and

    C = Σ_m P(m) ∫ sup_u f(y | u, m) dy = E_k[C(k, R/σ)],        k ~ Binomial(p, q),

since ``{m ⊙ u}`` is the ball of radius R in the k kept coordinates. Hiding the mask is post-processing of (m, y): the
same number is then an upper bound. As ``k ≤ p`` it never exceeds the capacity without pruning. (Ours, not the paper's.)
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from leakgauge import guards
from leakgauge.bounds.gaussian_capacity import log_ball_capacity, log_capacity_gaussian, ratio
from leakgauge.special import Array, log1pmx, stirling_tail

_FORMULA = "pruned Gaussian capacity"
_DIRECT = 400  # wider than this, the sum over k is an integral to machine precision


def log_capacity_pruned(dim: int, clip: float, sigma: float, keep: float, *, group: int = 1) -> float:
    """Log Bayes capacity: clip to R, keep each coordinate with probability ``keep``, add ``N(0, σ²)``.

    Exact if the adversary knows the mask, an upper bound if not (exact again for p = 1, and for clipping entry by
    entry). For a mask of exactly k coordinates use ``log_capacity_gaussian(k, …)``. If the kept coordinates are
    scaled up by ``1/keep``, give ``clip / keep``.
    """
    p = guards.count(dim, "dim", _FORMULA)
    q = guards.probability(keep, "keep", _FORMULA)
    a = ratio(clip, sigma, group, _FORMULA)
    if q in (0.0, 1.0) or a == 0:
        return log_capacity_gaussian(p, clip, sigma, group=group) if q == 1 else 0.0
    typical, spread = _typical(p, q, a)
    low, high = max(0.0, math.floor(typical - 10 * spread - 20)), min(float(p), math.ceil(typical + 10 * spread + 20))
    if high - low <= _DIRECT:
        k, step = np.arange(low, high + 1, dtype=np.float64), 1.0
    else:
        k = np.linspace(low, high, 129)
        step = (high - low) / 128
    return max(
        0.0,
        float(special.logsumexp(_log_binomial(k, p, q) + log_ball_capacity(k, np.full(k.shape, a)))) + math.log(step),
    )


def log_capacity_sparse(dim: int, kept: int, clip: float, sigma: float) -> float:
    """Upper bound on the log capacity when the client itself chooses which ``kept`` of p coordinates to send (top-k).

    The updates then fill ``binom(p, k)`` balls of dimension k; the integral of a maximum is at most the sum, and the
    balls lie in the one of dimension p: ``min(binom(p, k) C(k), C(p))``.
    """
    p = guards.count(dim, "dim", _FORMULA)
    k = guards.count(kept, "kept", _FORMULA, least=0)
    whole = log_capacity_gaussian(p, clip, sigma)
    if k >= p:
        return whole
    part = log_capacity_gaussian(k, clip, sigma) if k else 0.0
    choices = -math.log(p + 1) - float(special.betaln(k + 1, p - k + 1))
    return min(whole, max(choices, 0.0) + part)


def _typical(p: int, q: float, a: float) -> tuple[float, float]:
    """The k that contributes most, and the spread around it.

    ``d log C/dk ≈ log((t* + a)/√(k + 1))`` with ``t* + a ≈ a/2 + √(a²/4 + k + 1)`` the mode of the Gaussian integral:
    it tilts the binomial's odds. Only the place of a generous window depends on it, not the value.
    """
    odds = q / (1 - q)
    low, high = 0.0, float(p)
    for _ in range(60):
        k = (low + high) / 2
        root = math.sqrt(k + 1)
        tilted = odds * (math.hypot(a / 2, root) + a / 2) / root
        low, high = (k, high) if k * (1 + 1 / tilted) < p else (low, k)
        if high - low < 1e-3 * (1 + math.sqrt(k)):
            break
    return k, math.sqrt(k * (p - k) / p)


def _log_binomial(k: Array, p: int, q: float) -> Array:
    """``log(binom(p, k) q^k (1−q)^{p−k})`` for real k, after Loader: deviances and Stirling tails, no large terms."""
    inner = np.clip(k, 0.5, p - 0.5) if p > 1 else np.full_like(k, 0.5)
    rest = p - inner
    log_inner = (
        stirling_tail(float(p))
        - stirling_tail(inner)
        - stirling_tail(rest)
        + inner * log1pmx((p * q - inner) / inner)
        + rest * log1pmx((p * (1 - q) - rest) / rest)
        + 0.5 * np.log(p / (2 * np.pi * inner * rest))
    )
    ends = np.where(k == 0, p * math.log1p(-q), p * math.log(q))
    return np.where((k == 0) | (k == p), ends, log_inner)
