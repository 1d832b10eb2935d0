"""Skewed batches: updates in which some classes have more records than others, as real clients' have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.errors import DataError
from leakgauge.seeds import seed_of


def skew_problem(counts: Sequence[int] | None, batch: int, classes: int | None) -> tuple[str, str] | None:
    """What is wrong with class counts, and the remedy; None where nothing is."""
    if counts is None:
        return None
    if sum(counts) != batch:
        return f"{list(counts)} are {sum(counts)} records, a batch has {batch}", "let the counts add up to recipe.batch"
    if classes is not None and len(counts) > classes:
        return f"{len(counts)} classes, the records have {classes}", f"give at most {classes} counts"
    return None


def labels_of_batches(counts: Sequence[int], classes: int, updates: int, seed: int) -> Tensor:
    """The labels ``[updates · batch]`` of skewed batches.

    The classes stand in a random order, and each update begins one class further on, so that over ``classes``
    updates every class is the frequent one once.
    """
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed_of(seed, 6)))
    sizes = torch.tensor(list(counts))
    batches = [order.roll(-u)[: len(sizes)].repeat_interleave(sizes) for u in range(updates)]
    return torch.cat(batches) if batches else order[:0]


def places_of(labels: Tensor, pool: Tensor, where: str) -> list[int]:
    """For each label the next place of its class in the pool ``[n]`` of labels; no place is used twice."""
    by_class: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(pool.tolist()):
        by_class[label].append(place)
    wanted = labels.bincount().tolist()
    short = [c for c, number in enumerate(wanted) if number > len(by_class[c])]
    if short:
        first = short[0]
        raise DataError(
            f"{wanted[first]} records of class {first} are needed for these counts, there are {len(by_class[first])}",
            where=where,
            remedy="lower task.records, or give more even task.class_counts",
        )
    turns = {label: iter(places) for label, places in by_class.items()}
    return [next(turns[label]) for label in labels.tolist()]
