"""The laws of metrics."""

from __future__ import annotations

from math import isnan

import torch
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.types import Metric

CLOSE = 1e-9
"""Scores are float64 sums of at most some thousand terms of order 1: rounding stays far below this."""


def metric_laws(metric: Metric, originals: Tensor) -> None:
    """Put a metric through its laws on at least three records ``[n, *shape]`` that differ from each other.

    A record compared with itself gets the best score, reaches the threshold and is exact; no other record scores
    better; broken reconstructions score, and not better; a score does not depend on its neighbours; ``pairwise`` is
    the loop; shapes that do not fit are refused.
    """
    assert len(originals) >= 3, "give at least three records"
    meaning, others = metric.meaning, originals.roll(1, 0)
    same = _scores(metric, originals, originals)
    ends = float("inf") if meaning.best is None else meaning.best
    for score in same:
        assert score == ends or abs(score - ends) <= CLOSE, f"a record scores {score} against itself, best is {ends}"
        assert meaning.reached(score), f"the threshold {meaning.threshold} is out of reach"
        assert meaning.exact is None or meaning.reached(score, meaning.exact), f"{score} is not exact"
        assert meaning.text(score), "a score has no text"
    for score, best in zip(_scores(metric, others, originals), same, strict=True):
        assert meaning.better(best, score), f"another record scores {score}, the record itself {best}"
        assert meaning.exact is None or not meaning.reached(score, meaning.exact), "another record is exact"
    for value in (torch.nan, torch.inf, -torch.inf) if originals.is_floating_point() else ():
        for score, best in zip(_scores(metric, torch.full_like(originals, value), originals), same, strict=True):
            assert meaning.better(best, score), f"a reconstruction of {value} scores {score}"
    alone = torch.cat([metric(a[None], b[None]) for a, b in zip(others, originals, strict=True)])
    _close(alone, metric(others, originals), "a score depends on its neighbours")
    loop = torch.stack([metric(one.expand_as(originals), originals) for one in others])
    _close(metric.pairwise(others, originals), loop, "pairwise is not the loop")
    assert metric.pairwise(others[:2], originals).shape == (2, len(originals)), "pairwise is [m, n]"
    try:
        metric(others[:2], originals)
    except DomainError:
        return
    raise AssertionError("two reconstructions of more records are not refused")


def _scores(metric: Metric, reconstruction: Tensor, original: Tensor) -> list[float]:
    scores: list[float] = metric(reconstruction, original).tolist()
    assert len(scores) == len(original), "one score per record"
    assert not any(map(isnan, scores)), "a score is NaN"
    return scores


def _close(ours: Tensor, theirs: Tensor, what: str) -> None:
    equal = (ours == theirs) | ((ours - theirs).abs() <= CLOSE * (1 + theirs.abs()))
    assert bool(equal.all()), f"{what}: {ours.tolist()} and {theirs.tolist()}"
