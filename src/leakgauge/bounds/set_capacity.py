"""Bayes capacity of Gaussian noise on a set without a formula, by Monte Carlo with a valid interval.

For any compact K the capacity is ``∫ exp(−dist(y, K)²/2σ²) dy / (2πσ²)^{p/2}``. Both estimators below average a
bounded variable, so the interval is an empirical Bernstein interval: it holds for any number of draws, not only in
the limit.

References:
    Maurer and Pontil, Empirical Bernstein Bounds and Sample Variance Penalization, 2009.
    https://arxiv.org/abs/0907.3740
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leakgauge import guards
from leakgauge.bounds.gaussian_capacity import log_capacity_gaussian, ratio, shifted_mode
from leakgauge.defenses.update.vmf_sample import sample_gaps
from leakgauge.errors import DomainError
from leakgauge.special import Array

_FORMULA = "Gaussian capacity of a set"


@dataclass(frozen=True)
class LogEstimate:
    """The log of a Monte Carlo estimate, and of the ends of an interval that covers with ``confidence``."""

    log: float
    low: float
    high: float
    draws: int
    confidence: float


def log_capacity_points(
    points: Array, sigma: float, *, rng: np.random.Generator, draws: int = 10_000, confidence: float = 0.99
) -> LogEstimate:
    """Log Bayes capacity when the update is one of N rows: ``N · E[max_i P(i | y)]`` under a uniform prior.

    ``C/N`` is the success of the exact posterior maximiser, so this is what a perfect attack on N known
    secrets reaches. Only the span of the rows matters: noise orthogonal to it carries no information and is not drawn.
    """
    scale = guards.positive(sigma, "sigma", _FORMULA)
    guards.count(draws, "draws", _FORMULA, least=2)
    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 1 or not np.isfinite(rows).all():
        raise DomainError(f"points must be finite, of shape [N, p], got shape {rows.shape}", where=_FORMULA)
    rows = _in_own_span(rows - rows.mean(0)) / scale
    square = np.einsum("ij,ij->i", rows, rows)
    best = np.empty(draws)
    for start in range(0, draws, 1024):
        part = slice(start, min(start + 1024, draws))
        secret = rng.integers(len(rows), size=len(best[part]))
        y = rows[secret] + rng.standard_normal((len(secret), rows.shape[1]))
        logits = y @ rows.T - square / 2
        best[part] = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
    return _estimate(best, 1 / len(rows), 1.0, math.log(len(rows)), confidence)


def log_capacity_directions(
    points: Array, kappa: float, *, rng: np.random.Generator, draws: int = 10_000, confidence: float = 0.99
) -> LogEstimate:
    """The same for von Mises-Fisher noise around the directions of N rows: ``N · E[max_i P(i | y)]``.

    A draw is ``y = w m + √(1 − w²) v``; of v only the part in the span of the rows is drawn, and the rest's length.
    """
    guards.count(draws, "draws", _FORMULA, least=2)
    rows = np.asarray(points, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=-1)
    if rows.ndim != 2 or len(rows) < 1 or not (np.isfinite(rows).all() and (lengths > 0).all()):
        raise DomainError(
            f"points must be finite and not zero, of shape [N, p], got shape {rows.shape}", where=_FORMULA
        )
    dim = rows.shape[1]
    rows = _in_own_span(rows / lengths[:, None])
    gaps = sample_gaps(dim, kappa, draws, rng)
    mean = rows[rng.integers(len(rows), size=draws)]
    tangent = rng.standard_normal(mean.shape)
    tangent -= np.einsum("ij,ij->i", tangent, mean)[:, None] * mean
    rest = rng.chisquare(dim - rows.shape[1], size=draws) if dim > rows.shape[1] else np.zeros(draws)
    scale = np.sqrt(gaps * (2 - gaps) / (np.einsum("ij,ij->i", tangent, tangent) + rest))
    logits = kappa * (((1 - gaps)[:, None] * mean + scale[:, None] * tangent) @ rows.T)
    best = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
    return _estimate(best, 1 / len(rows), 1.0, math.log(len(rows)), confidence)


def log_capacity_set(
    distance: Callable[[Array], Array],
    dim: int,
    radius: float,
    sigma: float,
    *,
    rng: np.random.Generator,
    draws: int = 10_000,
    confidence: float = 0.99,
) -> LogEstimate:
    """Log Bayes capacity on any compact set inside the ball of ``radius`` around 0, given the distance to it.

    Draw y from the density ``∝ exp(−dist(y, ball)²/2σ²)`` that the ball's capacity integrates; then
    ``C = C_ball · E[exp((dist(y, ball)² − dist(y, K)²)/2σ²)]``, a mean over [0, 1]. ``distance`` maps points
    ``[n, p]`` to ``[n]``. Suitable for small p: in high dimension a set that is much smaller than the ball is hit too
    rarely, and the interval, though valid, says little more than ``C ≤ C_ball``.
    """
    p = guards.count(dim, "dim", _FORMULA)
    guards.count(draws, "draws", _FORMULA, least=2)
    a = ratio(radius, sigma, formula=_FORMULA)
    beyond, y = _around_ball(p, a, draws, rng)
    to_set = np.asarray(distance(y * sigma), dtype=np.float64) / sigma
    if to_set.shape != (draws,) or not (to_set >= beyond * (1 - 1e-9) - 1e-9).all():
        raise DomainError(
            "distance must return one number per point, never below the distance to the ball that contains the set",
            where=_FORMULA,
            remedy="enlarge radius, or check distance",
        )
    shares = np.exp(np.minimum((beyond**2 - to_set**2) / 2, 0.0))
    return _estimate(shares, 0.0, 1.0, log_capacity_gaussian(p, radius, sigma), confidence)


def _around_ball(p: int, a: float, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Distances beyond the ball of radius a, and points, from the density ``∝ exp(−dist²/2)``.

    That density is a mixture of uniform laws on balls of radius ``T + a``, with T of density
    ``∝ t e^{−t²/2} (t + a)^p``; log-concave with curvature ≥ 1, it is drawn by rejection from ``N(t*, 1)``.
    """
    mode = float(shifted_mode(np.array([float(p)]), np.array([a]))[0])
    t = np.empty(0)
    while t.size < draws:
        u = rng.standard_normal(2 * draws + 16)
        u = u[u > -mode]
        log_accept = np.log1p(u / mode) - u / mode + p * (np.log1p(u / (mode + a)) - u / (mode + a))
        t = np.concatenate([t, mode + u[np.log1p(-rng.random(u.size)) <= log_accept]])
    r = (t[:draws] + a) * rng.random(draws) ** (1 / p)
    direction = rng.standard_normal((draws, p))
    y = direction * (r / np.linalg.norm(direction, axis=1))[:, None]
    return np.maximum(r - a, 0.0), y


def _in_own_span(rows: Array) -> Array:
    """The rows in orthonormal coordinates of their span: the same distances in at most N dimensions."""
    if rows.shape[1] <= len(rows):
        return rows
    basis, _ = np.linalg.qr(rows.T)
    return np.ascontiguousarray(rows @ basis)


def _estimate(values: Array, low: float, high: float, log_scale: float, confidence: float) -> LogEstimate:
    """Empirical Bernstein around the mean of values in [low, high], times ``exp(log_scale)``."""
    level = guards.inside(confidence, "confidence", _FORMULA, 0.0, 1.0)
    n, mean = len(values), float(values.mean())
    log_term = math.log(4 / (1 - level))
    half = math.sqrt(2 * float(values.var(ddof=1)) * log_term / n) + 7 * (high - low) * log_term / (3 * (n - 1))
    ends = max(mean - half, low), min(mean + half, high)
    log, *limits = (log_scale + (math.log(x) if x > 0 else -math.inf) for x in (mean, *ends))
    return LogEstimate(log, limits[0], limits[1], draws=n, confidence=level)
