"""Records in their roles: those that are reported, and those that must not be."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.data import Dataset
from leakgauge.errors import DataError
from leakgauge.study.skew import labels_of_batches, places_of
from leakgauge.types import Records, Tree

FEWEST_REFERENCE = 200
MOST_TEST = 1000
"""Test records on which accuracy is measured."""


@dataclass(frozen=True, repr=False, eq=False)
class Roles:
    """The records of a study: ``reported`` ones, and others that are disjoint from them.

    ``others`` stand in for the reported records in the null, place by place: with the same label where labels are
    granted. ``tuning`` chooses settings. ``reference`` is what anybody may know of such data: the guess without an
    update comes from it. ``train`` and ``test`` are for training and accuracy.
    """

    reported: Records
    others: Records
    tuning: Records
    reference: Records
    train: Records
    test: Records
    key: bytes = b""
    """Of the private order of a redacted run; empty in a plain one."""

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        *,
        updates: int,
        batch: int,
        tuning: int,
        labels_granted: bool,
        seed: int,
        wanted: int = 0,
        counts: Sequence[int] | None = None,
    ) -> Roles:
        """Choose ``updates`` batches to report from the test split, and everything else from the train split.

        ``tuning`` batches must be there, up to ``wanted`` are taken if as many as are reported remain beside them.
        Batches have the class ``counts`` (see :mod:`leakgauge.study.skew`), or are balanced.
        """
        needed = updates * batch
        if len(dataset.test) < needed:
            raise DataError(
                f"{len(dataset.test)} records, {needed} are needed ({updates} updates of a batch of {batch})",
                where="task.data",
                remedy="lower task.records or task.recipe.batch",
            )
        reported = _reported(dataset, updates, needed, counts, seed)
        most = max(tuning, wanted) * batch + max(FEWEST_REFERENCE, 2 * needed)
        pool = _without(dataset.sample(min(most, len(dataset.train)), seed=seed, split="train"), reported)
        tuned = max(tuning, min(wanted, (len(pool) - needed) // batch)) * batch
        if len(pool) < tuned + batch:
            raise DataError(
                f"{len(pool)} train records that are not among the reported, {tuned + batch} are needed",
                where="task.data",
                remedy="give more train records: nulls and tuning must not use the reported ones",
            )
        chosen, reference = _tuning(pool, tuning, tuned // batch, counts, batch, seed)
        # another client's batch is skewed the same way; where labels are hidden, towards the next classes
        like = reported.labels if labels_granted or counts is None else reported.labels.roll(-batch)
        others = reference[_stand_ins(like, reference.labels, labels_granted or counts is not None)]
        test = dataset.sample(min(MOST_TEST, len(dataset.test)), seed=seed, split="test")
        return cls(reported, others, chosen, reference, dataset.train, test)

    def in_private_order(self, batch: int) -> Roles:
        """The same with the reported batches, and the records within each, in an order of their contents.

        The order of a plain run follows from the seed, and so do the labels, since classes take turns. This one is by
        hashes under a key that depends on all reported records: whoever lacks one of them cannot compute it. The same
        records always have the same order, so that a run resumes. Records that stand in for others move with them.
        """
        key = digest({"x": self.reported.inputs, "y": self.reported.labels}).encode()
        marks = [hashlib.sha256(key + digest({"x": x}).encode()).digest() for x in self.reported.inputs]
        inner = [sorted(range(start, start + batch), key=marks.__getitem__) for start in range(0, len(marks), batch)]
        inner.sort(key=lambda places: hashlib.sha256(b"".join(marks[i] for i in places)).digest())
        order = [place for places in inner for place in places]
        return replace(self, reported=self.reported[order], others=self.others[order], key=key)

    def privately(self, records: Records) -> Records:
        """Records in an order that only whoever has the reported ones can compute; unchanged in a plain run."""
        if not self.key:
            return records
        marks = [hashlib.sha256(self.key + digest({"x": x}).encode()).digest() for x in records.inputs]
        return records[sorted(range(len(marks)), key=marks.__getitem__)]

    def manifest(self, salt: str = "") -> dict[str, Any]:
        """Which records were reported, and which chose settings, stood in the null or made the guess: by hash, all
        together and each, so that anybody can see that the reported ones are in no other role.

        With a ``salt`` that is stored nowhere this can still be checked, but nobody can confirm a guess at a record:
        only hashes of each are listed then, which agree within this manifest and with no other. They are sorted: a
        record that stands in for a reported one has its label, which its place among the reference records would tell.
        """
        roles = {"reported": self.reported, "tuning": self.tuning, "another": self.others, "reference": self.reference}
        each = {role: [digest({f"x{salt}": x})[:16] for x in records.inputs] for role, records in roles.items()}
        if salt:
            return {"records": {role: sorted(hashes) for role, hashes in each.items()}}
        return {**{role: digest({"x": records.inputs}) for role, records in roles.items()}, "records": each}

    def guess(self, labels_granted: bool) -> Tensor:
        """The best guess without an update, for every reported record: the mean of the reference records, of its own
        class where labels are granted."""
        inputs, labels = self.reference.inputs, self.reference.labels
        mean = inputs.mean(0)
        if not labels_granted:
            return mean.expand_as(self.reported.inputs)
        means = {int(c): inputs[labels == c].mean(0) for c in labels.unique()}
        return torch.stack([means.get(int(c), mean) for c in self.reported.labels])


def _reported(dataset: Dataset, updates: int, needed: int, counts: Sequence[int] | None, seed: int) -> Records:
    if counts is None:
        return dataset.sample(needed, seed=seed, split="test")
    every = dataset.sample(len(dataset.test), seed=seed, split="test")
    return every[places_of(labels_of_batches(counts, dataset.domain.classes, updates, seed), every.labels, "task.data")]


def _tuning(
    pool: Records, fewest: int, most: int, counts: Sequence[int] | None, batch: int, seed: int
) -> tuple[Records, Records]:
    """The records that choose settings, in at most ``most`` batches like the reported ones, and the rest.

    Of skewed batches there may be fewer, down to ``fewest``: the pool need not have as many of every class.
    """
    if counts is None:
        return pool[: most * batch], pool[most * batch :]
    labels = labels_of_batches(counts, pool.domain.classes, most, seed)
    try:
        places = places_of(labels, pool.labels, "tuning.records")
    except DataError:
        if most <= fewest:
            raise
        return _tuning(pool, fewest, most - 1, counts, batch, seed)
    rest = sorted(set(range(len(pool))) - set(places))
    return pool[places], pool[rest]


def digest(tree: Tree) -> str:
    """The hash of named tensors: names, types, shapes, bytes."""
    hashed = hashlib.sha256()
    for name in sorted(tree):
        value = tree[name].detach().cpu().contiguous()
        hashed.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        hashed.update(value.flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _without(records: Records, taken: Records) -> Records:
    """The records that do not occur among the taken ones: data sets hold duplicates."""
    hashes = {digest({"x": x}) for x in taken.inputs}
    return records[[i for i, x in enumerate(records.inputs) if digest({"x": x}) not in hashes]]


def _stand_ins(labels: Tensor, reference: Tensor, granted: bool) -> list[int]:
    """For every reported record a place among the reference records: the next of its class where labels are granted
    and the class is there, else the next of all."""
    by_class: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(reference.tolist()):
        by_class[label].append(place)
    used: dict[int, int] = defaultdict(int)
    everyone = list(range(len(reference)))
    chosen = []
    for label in labels.tolist():
        key = label if granted and by_class[label] else -1
        pool = by_class[label] if key >= 0 else everyone
        chosen.append(pool[used[key] % len(pool)])
        used[key] += 1
    return chosen
