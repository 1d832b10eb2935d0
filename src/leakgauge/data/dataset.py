"""A data set: two splits of records, read when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from leakgauge import guards
from leakgauge.data.arrays import Arrays
from leakgauge.errors import DataError
from leakgauge.types import Domain, Feature, Records

Split = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records to train on and records to test on, of one domain.

    ``train`` and ``test`` are read at first use and then cached. ``sample`` turns only the chosen records
    into tensors, so a few images of a large set cost little. The domain is ``stated``, or inferred from the
    arrays, with ``classes`` or the number of ``class_names`` where known and otherwise the labels;
    ``features`` describe the columns of a table.
    """

    name: str
    readers: Mapping[Split, Callable[[], Arrays]] = field(repr=False)
    class_names: tuple[str, ...] | None = None
    classes: int | None = None
    stated: Domain | None = field(default=None, repr=False)
    features: tuple[Feature, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        name: str,
        train: Arrays,
        test: Arrays,
        *,
        class_names: tuple[str, ...] | None = None,
        classes: int | None = None,
        stated: Domain | None = None,
        features: tuple[Feature, ...] = (),
    ) -> Dataset:
        """A data set from arrays that are already in memory."""
        return cls(name, {"train": lambda: train, "test": lambda: test}, class_names, classes, stated, features)

    @cached_property
    def _train(self) -> Arrays:
        return self.readers["train"]()

    @cached_property
    def _test(self) -> Arrays:
        return self.readers["test"]()

    @cached_property
    def train(self) -> Records:
        return self._train.records(self.domain)

    @cached_property
    def test(self) -> Records:
        return self._test.records(self.domain)

    @cached_property
    def domain(self) -> Domain:
        """The domain of both splits: ``stated``, otherwise images, or a table if records are rows."""
        if self.stated is not None:
            return self.stated
        largest = max((int(a.labels.max()) for a in (self._train, self._test) if len(a)), default=-1) + 1
        known = self.classes or len(self.class_names or ()) or largest
        if largest > known:
            raise DataError(
                f"has the label {largest - 1} but {known} classes", where=self.name, remedy=f"use labels 0..{known - 1}"
            )
        shapes = {a.inputs.shape[1:] for a in (self._train, self._test) if len(a)}
        if len(shapes) != 1:
            raise DataError(
                f"has records of the shapes {sorted(shapes)}", where=self.name, remedy="resize all records to one shape"
            )
        shape = shapes.pop()
        return Domain("table" if len(shape) == 1 else "image", shape, known, self.features)

    def labels(self, split: Split = "train") -> npt.NDArray[np.int64]:
        """The labels of a split, without converting its inputs to tensors."""
        return self._arrays(split).labels

    def moments(self, split: Split = "train") -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel, as ``normalise`` takes them. Images only."""
        if self.domain.kind != "image":
            raise DataError(f"has {self.domain.kind} records", where=self.name, remedy="use this for images only")
        return self._arrays(split).moments()

    def sample(self, n: int, seed: int = 0, split: Split = "train") -> Records:
        """``n`` records, as balanced over the classes as the split allows; the same for the same seed.

        The classes take turns in a random order, each with its records in a random order, so
        ``sample(n)`` is the beginning of ``sample(m)`` for ``n < m``, and an exhausted class is
        skipped. Drawn without replacement.
        """
        guards.seed(seed, f"{self.name}, {split}")
        arrays = self._arrays(split)
        if not 0 <= n <= len(arrays):
            raise DataError(
                f"asked for {n} of {len(arrays)} records", where=f"{self.name}, {split}", remedy="ask for fewer records"
            )
        return arrays.records(self.domain, _turns(arrays.labels, seed)[:n])

    def _arrays(self, split: Split) -> Arrays:
        if split not in ("train", "test"):
            raise DataError(f"has no split {split!r}", where=self.name, remedy="use 'train' or 'test'")
        return self._train if split == "train" else self._test


def _turns(labels: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """All positions, in the order in which the classes take turns."""
    # raw bits of PCG64 are the same in every version of numpy; the shuffles built on them need not be
    bits = np.random.PCG64(seed)
    order = np.argsort(bits.random_raw(len(labels)), kind="stable")
    shuffled = labels[order]
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(shuffled):
        (members,) = np.nonzero(shuffled == label)
        rank[members] = np.arange(len(members))
    place = bits.random_raw(int(labels.max(initial=0)) + 1)
    return order[np.lexsort((place[shuffled], rank))]


def divide(arrays: Arrays, share: float, *, where: str) -> tuple[Arrays, Arrays]:
    """Split the records of a source that has no split of its own into train and test.

    Of the m records of each class ``⌊share · m⌋`` become test records, evenly spread over their order.
    The split is deterministic: the same file gives the same split.
    """
    if not 0 <= share < 1:
        raise DataError(f"split is {share}", where=where, remedy="give the share of test records, in [0, 1)")
    chosen = np.zeros(len(arrays), bool)
    for label in np.unique(arrays.labels):
        (members,) = np.nonzero(arrays.labels == label)
        steps = np.floor(np.arange(len(members) + 1) * share + 1e-9)  # 1e-9: 0.29 * 100 is not quite 29
        chosen[members] = np.diff(steps) > 0
    return (
        Arrays(arrays.inputs[~chosen], arrays.labels[~chosen]),
        Arrays(arrays.inputs[chosen], arrays.labels[chosen]),
    )
