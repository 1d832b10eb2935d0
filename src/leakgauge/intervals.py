"""Intervals of rates, means and differences of means: one definition of each. Without torch: reports use them, too."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from leakgauge.errors import DomainError

if TYPE_CHECKING:
    from torch import Tensor

Values = NDArray[np.float64]
FLOOR = 0.25
"""The least spread of a resample, as a share of the sample's."""


@dataclass(frozen=True)
class Interval:
    """The mean of n values, with its interval ``[low, high]`` at ``confidence``."""

    mean: float
    low: float
    high: float
    n: int
    confidence: float = 0.95


def clopper_pearson(count: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a rate seen ``count`` times in n: Beta quantiles, never too short, often a bit long.

    References:
        Clopper, Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial, 1934.
    """
    _check(n >= 1 and 0 <= count <= n, f"a count must lie in 0..n with n ≥ 1, got {count} of {n}", "clopper_pearson")
    _check(0 < confidence < 1, f"confidence must lie in (0, 1), got {confidence}", "clopper_pearson")
    interval = stats.binomtest(count, n).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def mean_interval(
    values: ArrayLike | Tensor, confidence: float = 0.95, seed: int = 0, *, resamples: int = 10_000
) -> Interval:
    """A mean with its interval, for few and skewed scores (SSIM or PSNR over 8 to 20 records).

    ``[x̄ − q₊ s/√n, x̄ + q₋ s/√n]``, where q₊ and q₋ are each the larger of Student's quantile and the quantile of
    ``±(x̄* − x̄)√n / s*`` over ``resamples`` draws with replacement (the studentised bootstrap). Hence never shorter
    than Student's interval, and longer towards a long tail. Measured at 95 %, n = 8 to 20: it covers 93 to 98 % for
    normal, uniform, exponential and beta scores, where the plain percentile bootstrap covers 84 to 93 %. No interval
    repairs a tail that no value fell into: where one record in five leaks, eight records show none in 17 % of cases.
    s* is at least a quarter of s, or samples with many equal values would give resamples without any spread.

    A single value has the interval (−∞, ∞), equal values have none. ``+inf`` (exact recoveries) makes the mean and the
    upper end infinite, honestly; the lower end is then that of the values with ∞ replaced by the largest finite one.
    NaN is refused: score failures before averaging. With the same seed the same values give the same interval.

    References:
        Efron, Tibshirani, An Introduction to the Bootstrap, 1993, Section 12.5 (the bootstrap-t interval).
    """
    x = _values(values, "mean_interval")
    return _interval([x], [1.0], confidence, seed, resamples, "mean_interval")


def difference_interval(
    after: ArrayLike | Tensor,
    before: ArrayLike | Tensor,
    confidence: float = 0.95,
    seed: int = 0,
    *,
    resamples: int = 10_000,
) -> Interval:
    """``mean(after) − mean(before)`` of two independent samples; paired ones take ``mean_interval(after − before)``.

    The interval of :func:`mean_interval`, with Welch's standard error ``√(s²/n + s'²/n')`` and degrees of freedom;
    ``n`` is the size of the smaller sample.
    """
    samples = [_values(after, "difference_interval"), _values(before, "difference_interval")]
    return _interval(samples, [1.0, -1.0], confidence, seed, resamples, "difference_interval")


def _interval(
    samples: list[Values], signs: list[float], confidence: float, seed: int, resamples: int, where: str
) -> Interval:
    """The interval of ``Σ signs · means`` of independent samples."""
    _check(0 < confidence < 1, f"confidence must lie in (0, 1), got {confidence}", where)
    n = min(map(len, samples))
    ends = {float(side * sign) for x, side in zip(samples, signs, strict=True) for sign in np.sign(x[np.isinf(x)])}
    _check(len(ends) < 2, "∞ and −∞ have no mean", where)
    finite = [np.clip(x, *_finite_ends(x)) for x in samples]
    mean = sum(sign * float(x.mean()) for x, sign in zip(finite, signs, strict=True))
    below, above = _reach(finite, signs, confidence, seed, resamples) if n > 1 else (inf, inf)
    low, high = mean - below, mean + above
    if ends:
        mean = ends.pop() * inf
        if n > 1 and not any(np.isfinite(x).any() for x in samples):
            return Interval(mean, mean, mean, n, confidence)
        low, high = (low, inf) if mean > 0 else (-inf, high)
    return Interval(mean, low, high, n, confidence)


def _reach(
    samples: list[Values], signs: list[float], confidence: float, seed: int, resamples: int
) -> tuple[float, float]:
    """How far the interval reaches below and above the mean."""
    parts = np.array([x.var(ddof=1) / len(x) for x in samples])
    error = float(np.sqrt(parts.sum()))
    if error <= 1e-15 * max(float(np.abs(x).max()) for x in samples):  # equal values, up to the rounding of their mean
        return 0.0, 0.0
    freedom = parts.sum() ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, samples, strict=True))
    student = float(stats.t.ppf((1 + confidence) / 2, freedom))
    generator = np.random.default_rng(seed)
    shift, spread = np.zeros(resamples), np.zeros(resamples)
    for x, sign in zip(samples, signs, strict=True):
        means, variances = _resampled(x, resamples, generator)
        shift += sign * (means - x.mean())
        spread += np.maximum(variances, x.var(ddof=1) * FLOOR**2) / len(x)
    low, high = np.quantile(shift / np.sqrt(spread), [(1 - confidence) / 2, (1 + confidence) / 2])
    return max(student, float(high)) * error, max(student, -float(low)) * error


def _resampled(x: Values, resamples: int, generator: np.random.Generator) -> tuple[Values, Values]:
    """Means and variances of draws with replacement; in blocks, for many values must not fill memory."""
    rows = max(1, 1_000_000 // len(x))
    blocks = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    draws = (x[generator.integers(len(x), size=(block, len(x)))] for block in blocks)
    both = [(draw.mean(1), draw.var(1, ddof=1)) for draw in draws]
    return np.concatenate([means for means, _ in both]), np.concatenate([variances for _, variances in both])


def _values(values: ArrayLike | Tensor, where: str) -> Values:
    numbers: Any = values.detach().cpu() if hasattr(values, "detach") else values
    x = np.asarray(numbers, dtype=np.float64).ravel()
    _check(len(x) >= 1 and not np.isnan(x).any(), "a mean needs at least one value and no NaN", where)
    return x


def _finite_ends(x: Values) -> tuple[float, float]:
    finite = x[np.isfinite(x)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def _check(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise DomainError(what, where=where, remedy="see its docstring for the domain")
