"""How often the best guess without any observation succeeds, with an upper confidence limit.

A ceiling on reconstruction starts from ``g = sup_z P(d(X, z) ≤ η)`` over all guesses z. From reference records it can
be estimated for chosen guesses, or bounded for all guesses at once through pairs of records.

References:
    Clopper and Pearson, The Use of Confidence or Fiducial Limits …, 1934. https://doi.org/10.1093/biomet/26.4.404
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import stats
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.types import Records

_FORMULA = "best fixed guess"

Score = Callable[[Tensor, Tensor], Tensor]
"""``(reconstructions [n, …], truths [n, …]) → [n]``; higher is better."""


@dataclass(frozen=True)
class BestGuess:
    """The success of the best guess: an estimate, and an upper limit that holds with ``confidence``.

    Conditional on the reference records being a fair sample. ``scope`` says which guesses it covers: the ones that were
    tried, or all.
    """

    estimate: float
    upper: float
    threshold: float
    confidence: float
    samples: int
    scope: Literal["these guesses", "all guesses"]


def best_guess(distances: ArrayLike, threshold: float, *, confidence: float = 0.99) -> BestGuess:
    """The best of m chosen guesses, from their distances ``[m, n]`` to n reference records.

    The guesses must have been chosen without these records (such as the mean and the medoids of others). Each gets a
    one-sided Clopper-Pearson limit at confidence ``1 − (1 − confidence)/m``, so that the largest limit holds for all.
    Guesses that were not tried are not covered: see :func:`best_guess_by_pairs`.
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 2 or 0 in d.shape or np.isnan(d).any():
        raise DomainError(f"distances must have shape [guesses, records] without NaN, got {d.shape}", where=_FORMULA)
    eta, level = _levels(threshold, confidence)
    hits = int((d <= eta).sum(1).max())
    n = d.shape[1]
    limit = upper_limit(hits, n, confidence=1 - (1 - level) / len(d))
    return BestGuess(hits / n, limit, eta, level, n, "these guesses")


def best_guess_by_pairs(distances: ArrayLike, threshold: float, *, confidence: float = 0.99) -> BestGuess:
    """The best of **all** guesses, from the distances ``[n]`` of n disjoint pairs of reference records.

    If two records both lie within η of some z, they lie within 2η of each other:
    ``sup_z P(d(X, z) ≤ η)² ≤ P(d(X, X') ≤ 2η)``. Needs a metric d (root mean squared error, not its square).
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 1 or d.size == 0 or np.isnan(d).any():
        raise DomainError(f"distances must have shape [pairs] without NaN, got {d.shape}", where=_FORMULA)
    eta, level = _levels(threshold, confidence)
    hits = int((d <= 2 * eta).sum())
    limit = upper_limit(hits, d.size, confidence=level)
    return BestGuess(math.sqrt(hits / d.size), math.sqrt(limit), eta, level, d.size, "all guesses")


def upper_limit(hits: int, trials: int, *, confidence: float = 0.99) -> float:
    """One-sided upper Clopper-Pearson limit of a success probability after ``hits`` in ``trials``."""
    n = guards.count(trials, "trials", _FORMULA)
    k = guards.count(hits, "hits", _FORMULA, least=0)
    level = guards.inside(confidence, "confidence", _FORMULA, 0.0, 1.0)
    if k > n:
        raise DomainError(f"hits must be at most trials = {n}, got {k}", remedy="count a record once", where=_FORMULA)
    return float(stats.binomtest(k, n, alternative="less").proportion_ci(level, method="exact").high)


def lower_limit(hits: int, trials: int, *, confidence: float = 0.99) -> float:
    """One-sided lower Clopper-Pearson limit; if it exceeds a bound, it contradicts the bound."""
    return 1 - upper_limit(trials - hits, trials, confidence=confidence)


def _levels(threshold: float, confidence: float) -> tuple[float, float]:
    eta = guards.non_negative(threshold, "threshold", _FORMULA)
    return eta, guards.inside(confidence, "confidence", _FORMULA, 0.0, 1.0)


def measured_guess(
    reference: Records,
    score: Score,
    threshold: float,
    *,
    labels: bool = True,
    tries: int = 32,
    confidence: float = 0.99,
    seed: int = 0,
) -> BestGuess:
    """How often ``score(guess, record) ≥ threshold`` for the best guess made from reference records alone.

    One half of the records, drawn by ``seed``, chooses the guess: of a flat grey, the mean, the class means and
    ``tries`` of the records themselves, the one that succeeds most often on that half. The other half evaluates it,
    with a one-sided Clopper-Pearson limit. With ``labels`` there is one guess per class, as for an adversary to whom
    labels are granted. Better guesses may exist; only these were tried.
    """
    if len(reference) < 4:
        raise DomainError(f"got {len(reference)} reference records", where=_FORMULA, remedy="give at least four")
    guards.count(tries, "tries", _FORMULA, least=0)
    order = torch.randperm(len(reference), generator=torch.Generator().manual_seed(seed))
    first, second = reference[order[: len(order) // 2]], reference[order[len(order) // 2 :]]
    guesses = _guesses(first, tries)
    classes = second.labels.unique().tolist() if labels else [None]
    hits = 0
    for label in classes:
        own, other = (half if label is None else half[half.labels == label] for half in (first, second))
        scored = [int(_hits(guess, own if len(own) else first, score, threshold).sum()) for guess in guesses]
        hits += int(_hits(guesses[scored.index(max(scored))], other, score, threshold).sum())
    limit = upper_limit(hits, len(second), confidence=confidence)
    return BestGuess(hits / len(second), limit, threshold, confidence, len(second), "these guesses")


def _guesses(records: Records, tries: int) -> list[Tensor]:
    means = [records.inputs[records.labels == label].mean(0) for label in records.labels.unique()]
    flat = torch.full_like(records.inputs[0], 0.5)
    return [flat, records.inputs.mean(0), *means, *records.inputs[:tries]]


def _hits(guess: Tensor, records: Records, score: Score, threshold: float) -> Tensor:
    return score(guess.expand_as(records.inputs), records.inputs) >= threshold
