"""Numbers with intervals: the adversarial risk at δ, rates and means."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import stats
from torch import Tensor

from leakgauge.errors import DomainError


@dataclass(frozen=True)
class Risk:
    """The rate of failures among n records, with its interval ``[low, high]`` at ``confidence``."""

    rate: float
    low: float
    high: float
    n: int
    confidence: float = 0.95


@dataclass(frozen=True)
class Interval:
    """The mean of n values, with its interval ``[low, high]`` at ``confidence``."""

    mean: float
    low: float
    high: float
    n: int
    confidence: float = 0.95


def adversarial_risk(outcome: Tensor, delta: float | None = None, confidence: float = 0.95) -> Risk:
    """The adversary's risk at δ: the probability ``P(‖x − f(g)‖ > δ)`` that it ends outside the δ-ball of the record.

    ``outcome`` holds one distance per record, with ``delta``; or booleans, true where the attack succeeded, without.
    NaN and infinite distances are failures. LOW risk means a STRONG adversary. The interval is Clopper-Pearson's:
    it covers the true risk with at least the given confidence at any n, if the records are independent draws.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Section 4. https://arxiv.org/abs/2111.04706
    """
    outcome = torch.as_tensor(outcome).detach().flatten()
    if outcome.dtype is torch.bool:
        if delta is not None:
            raise DomainError("delta with booleans", where="adversarial_risk", remedy="give distances, or no delta")
        failed = ~outcome
    else:
        if delta is None or not delta >= 0:
            raise DomainError(
                f"distances need a δ ≥ 0, got {delta}", where="adversarial_risk", remedy="give delta, or booleans"
            )
        failed = ~(outcome <= delta)  # not "outcome > delta": NaN must count as a failure
    failures, n = int(failed.sum()), len(failed)
    low, high = clopper_pearson(failures, n, confidence)
    return Risk(failures / n, low, high, n, confidence)


def clopper_pearson(count: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a rate seen ``count`` times in n: Beta quantiles, never too short, often a bit long.

    References:
        Clopper, Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial, 1934.
    """
    _check(n >= 1 and 0 <= count <= n, f"a count must lie in 0..n with n ≥ 1, got {count} of {n}", "clopper_pearson")
    _check(0 < confidence < 1, f"confidence must lie in (0, 1), got {confidence}", "clopper_pearson")
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else float(stats.beta.ppf(tail, count, n - count + 1))
    high = 1.0 if count == n else float(stats.beta.ppf(1 - tail, count + 1, n - count))
    return low, high


def mean_interval(
    values: ArrayLike | Tensor, confidence: float = 0.95, seed: int = 0, *, resamples: int = 10_000
) -> Interval:
    """A mean with its bootstrap interval, for scores that are not normal (PSNR over records).

    Quantiles of the means of ``resamples`` draws with replacement, at levels widened from ``α/2`` to
    ``Φ(−√(n/(n−1)) t_{α/2, n−1})``: the plain percentile interval is too short for the 10-20 records we usually have.
    A single value has the interval (−∞, ∞). ``+inf`` (exact recoveries) makes the mean infinite, honestly; NaN is
    refused: score failures before averaging. With the same seed the same values give the same interval.

    References:
        Hesterberg, What Teachers Should Know about the Bootstrap, 2015 (the expanded percentile interval).
    """
    x = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=float).ravel()
    _check(len(x) >= 1 and not np.isnan(x).any(), "a mean needs at least one value and no NaN", "mean_interval")
    _check(not (np.isposinf(x).any() and np.isneginf(x).any()), "∞ and −∞ have no mean", "mean_interval")
    _check(0 < confidence < 1, f"confidence must lie in (0, 1), got {confidence}", "mean_interval")
    n = len(x)
    if n == 1:
        return Interval(float(x[0]), -inf, inf, 1, confidence)
    t = stats.t.ppf((1 - confidence) / 2, n - 1)
    tail = float(stats.norm.cdf(sqrt(n / (n - 1)) * t))
    generator, rows = np.random.default_rng(seed), max(1, 1_000_000 // n)  # in blocks: many values must not fill memory
    blocks = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    means = np.sort(np.concatenate([x[generator.integers(n, size=(block, n))].mean(1) for block in blocks]))
    # order statistics, no interpolation: between two infinite means it would give NaN
    below = int(np.floor(tail * (resamples - 1)))
    return Interval(float(x.mean()), float(means[below]), float(means[resamples - 1 - below]), n, confidence)


def _check(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise DomainError(what, where=where, remedy="see its docstring for the domain")
