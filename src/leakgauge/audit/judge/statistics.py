"""The statistics of a verdict: excess over the null, its p-value, and rates at a fixed false-positive rate.

Higher scores are better reconstructions. If an update says nothing about its record, the record's score and the score
of an unrelated update against the same record are exchangeable: the sign of their difference is a fair coin, and one
record's score is one more draw of the scores that unrelated updates reach against it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import isfinite
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import stats

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
    gain = real - null
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


def alone(real: Scores, null: Scores, alike: npt.NDArray[np.bool_]) -> Scores:
    """The one-sided p-value of each record by itself, ``[n]``: a mean over records would hide a single leak.

    ``null[j, i]`` is the score of the unrelated update j against record i, and counts where ``alike[j, i]``. A new draw
    of record i's null scores lies ``t = (r_i − m_i) / (s √(1 + 1/J_i))`` from their mean, with the spread s pooled over
    records: Student's prediction, exact for normal scores. Where the null scores themselves reach as far from their
    means, their share counts instead if it is larger: tails may be heavier than normal ones. A record without null
    scores, or a pool without any degree of freedom, gets 1.
    """
    counts = alike.sum(0)
    freedom = int((counts - 1).clip(0).sum())
    if freedom < 1:
        return np.ones(len(real))
    means = np.where(alike, null, 0.0).sum(0) / counts.clip(1)
    gaps = np.sort((null - means)[alike])
    spread = np.sqrt((gaps**2).sum() / freedom)
    t = (real - means) / (max(spread, 1e-6) * np.sqrt(1 + 1 / counts.clip(1)))
    reached = len(gaps) - np.searchsorted(gaps, real - means, side="left")
    share = np.where(reached > 0, (1 + reached) / (1 + len(gaps)), 0.0)
    p: Scores = np.where(counts > 0, np.maximum(stats.t.sf(t, freedom), share), 1.0)
    return p


def best_of(scores: Sequence[Scores]) -> Scores:
    """The best score of each record over a set of adversaries; the same set on both sides of a comparison."""
    best: Scores = np.maximum.reduce([np.nan_to_num(s, nan=-np.inf) for s in scores])
    return best
