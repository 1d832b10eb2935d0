"""The statistics of a verdict: excess over the null, its p-value, and rates at a fixed false-positive rate.

Scores are per record, higher is a better reconstruction. Under the null hypothesis a record's real and null score are
exchangeable, so the sign of each difference is a fair coin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakgauge.errors import DomainError

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Excess:
    """``mean(real − null)`` with a bootstrap interval and a one-sided sign-flip p-value."""

    mean: float
    low: float
    high: float
    p: float
    n: int


def excess(real: Scores, null: Scores, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Excess:
    """Paired comparison of n records. The p-value is exact up to 16 records, else from ``resamples`` random flips."""
    if real.shape != null.shape or real.ndim != 1 or not len(real):
        raise DomainError(f"real and null must be the same records, got {real.shape} and {null.shape}", where="excess")
    gain = real - null
    generator = np.random.Generator(np.random.PCG64(seed))
    means = gain[generator.integers(0, len(gain), (resamples, len(gain)))].mean(1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Excess(float(gain.mean()), float(low), float(high), _sign_flip(gain, resamples, generator), len(gain))


def _sign_flip(gain: Scores, resamples: int, generator: np.random.Generator) -> float:
    n, observed = len(gain), gain.sum()
    slack = 1e-12 * np.abs(gain).sum()  # a tie must count as a tie, whatever the order of summation
    if n <= 16:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((signs @ gain >= observed - slack).mean())
    signs = generator.integers(0, 2, (resamples, n)) * 2 - 1
    return float((1 + (signs @ gain >= observed - slack).sum()) / (1 + resamples))


def least_p(records: int, resamples: int = 10_000) -> float:
    """The smallest p-value that so many records can reach."""
    return float(2.0**-records if records <= 16 else 1 / (1 + resamples))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction: p-values that may be compared with the level as they are, whatever their dependence.

    References:
        Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    corrected, running = {}, 0.0
    for rank, key in enumerate(sorted(p, key=lambda k: p[k])):
        running = max(running, min(1.0, (len(p) - rank) * p[key]))
        corrected[key] = running
    return corrected


@dataclass(frozen=True)
class Rate:
    """The share of records whose score exceeds what a share ``false_positives`` of null scores exceeds."""

    rate: float
    threshold: float
    false_positives: float


def rate_at(real: Scores, null: Scores, false_positives: float = 0.05) -> Rate:
    """Reconstruction rate at a fixed false-positive rate."""
    threshold = float(np.quantile(null, 1 - false_positives, method="higher"))
    return Rate(float((real > threshold).mean()), threshold, false_positives)


def exposure(real: Scores, null: Scores) -> Scores:
    """Per record: the share of all null scores at least as high, ``(1 + #{null ≥ real}) / (1 + n)``; low is exposed."""
    ordered = np.sort(null)
    above = len(ordered) - np.searchsorted(ordered, real, side="left")
    shares: Scores = ((1 + above) / (1 + len(ordered))).astype(np.float64)
    return shares


def best_of(scores: Sequence[Scores]) -> Scores:
    """The best score of each record over a set of adversaries; the same set on both sides of a comparison."""
    best: Scores = np.maximum.reduce([np.nan_to_num(s, nan=-np.inf) for s in scores])
    return best
