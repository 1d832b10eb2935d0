"""The statistics of a verdict: excess over the null, its p-value, and rates at a fixed false-positive rate.

Higher scores are better reconstructions. If an update says nothing about its record, the record's score and the score
of an unrelated update against the same record are exchangeable: the sign of their difference is a fair coin. One record
by itself is tested in :mod:`leakgauge.audit.judge.single`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from leakgauge.audit.judge.values import Excess, Rate
from leakgauge.errors import DomainError
from leakgauge.intervals import mean_interval
from leakgauge.metrics.sign_flips import sign_flip_p

Scores = npt.NDArray[np.float64]
K = TypeVar("K", bound=Hashable)


def excess(real: Scores, null: Scores, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Excess:
    """Paired comparison of n records: ``mean(real − null)`` with its interval and a one-sided sign-flip p-value.

    The p-value is exact up to 16 records, else from ``resamples`` random flips. One record has no interval.
    """
    if real.shape != null.shape or real.ndim != 1 or not len(real):
        raise DomainError(f"real and null must be the same records, got {real.shape} and {null.shape}", where="excess")
    return _compared((real - null).astype(np.float64).tobytes(), confidence, resamples, seed)


@lru_cache(maxsize=32)  # the undefended update is compared as a defense, as a control and as its only adversary's
def _compared(differences: bytes, confidence: float, resamples: int, seed: int) -> Excess:
    gain = np.frombuffer(differences, np.float64)
    interval = mean_interval(gain, confidence, seed, resamples=resamples)
    generator = np.random.Generator(np.random.PCG64(seed))
    p = sign_flip_p(gain, resamples, generator)
    low, high = (end if isfinite(end) else None for end in (interval.low, interval.high))
    return Excess(mean=interval.mean, low=low, high=high, p=p, n=len(gain))


def holm(p: Mapping[K, float]) -> dict[K, float]:
    """Holm's correction: p-values that may be compared with the level as they are, whatever their dependence.

    References:
        Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    corrected, running = {}, 0.0
    for rank, key in enumerate(sorted(p, key=lambda k: p[k])):
        running = max(running, min(1.0, (len(p) - rank) * p[key]))
        corrected[key] = running
    return corrected


def rate_at(real: Scores, null: Scores, false_positives: float = 0.05) -> Rate:
    """Reconstruction rate at a fixed false-positive rate."""
    threshold = float(np.quantile(null, 1 - false_positives, method="higher"))
    return Rate(rate=float((real > threshold).mean()), threshold=threshold, false_positives=false_positives)


def best_of(scores: Sequence[Scores], *, lower: bool = False) -> Scores:
    """The best score of each record over a set of adversaries; the same set on both sides of a comparison."""
    if lower:
        return -best_of([-s for s in scores])
    best: Scores = np.maximum.reduce([np.nan_to_num(s, nan=-np.inf) for s in scores])
    return best
