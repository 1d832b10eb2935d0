"""κ of an audit: the best guess that can be made of a record without its update, over reference records."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.bounds.guesses import BestGuess, upper_limit
from leakgauge.errors import DomainError
from leakgauge.types import Records

Score = Callable[[Tensor, Tensor], Tensor]
"""``(reconstructions [n, …], truths [n, …]) → [n]``; higher is better."""


def blind_guess(
    reference: Records,
    score: Score,
    threshold: float,
    *,
    labels: bool = True,
    tries: int = 32,
    confidence: float = 0.99,
    seed: int = 0,
) -> BestGuess:
    """κ: how often ``score(guess, record) ≥ threshold`` for a guess that knows the reference records only.

    Half of them, drawn by ``seed``, choose the guess: of a flat grey, the mean, the means of the classes and ``tries``
    of the records themselves, the one that hits most of that half. The other half, not seen before, counts its hits,
    with the one-sided Clopper-Pearson limit. ``labels`` lets the guess know the class, as an adversary
    to whom labels are granted does: then every class has its own. Better guesses may exist; they were not tried.
    """
    if len(reference) < 4:
        raise DomainError(f"{len(reference)} reference records", where="blind guess", remedy="give at least four")
    guards.count(tries, "tries", "blind guess", least=0)
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
