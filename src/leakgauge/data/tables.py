"""Rows of tables: checked, described feature by feature, standardised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from leakgauge.data.arrays import Arrays, checked_labels
from leakgauge.errors import DataError
from leakgauge.types import Feature

MOST_COLUMNS = 10_000
ROUNDING = 1e-6
"""A column whose deviation is a smaller share of its values than this is constant: float32 shows no more."""


def checked_rows(rows: npt.NDArray[Any], labels: npt.NDArray[Any], *, where: str) -> Arrays:
    """Rows ``[n, columns]`` of finite numbers as float32, and their labels, or a DataError."""
    labels = checked_labels(labels, where=where)
    if len(rows) != len(labels):
        raise DataError(f"{len(rows)} rows but {len(labels)} labels", where=where, remedy="give one label per row")
    if not len(rows) or not 0 < rows.shape[1] <= MOST_COLUMNS:
        raise DataError(
            f"has {len(rows)} rows of {rows.shape[1]} columns",
            where=where,
            remedy=f"give at least one row, and 1 to {MOST_COLUMNS:,} columns",
        )
    with np.errstate(over="ignore"):
        numbers = rows.astype(np.float32)
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise DataError(
            f"row {row}, column {column} holds {rows[row, column]}",
            where=where,
            remedy="leave rows with missing or huge numbers out, or fill them in",
        )
    return Arrays(numbers, labels)


def described(names: Sequence[str], rows: npt.NDArray[Any], *, where: str) -> tuple[Feature, ...]:
    """The features of columns by their names: neighbours named ``job=clerk``, ``job=nurse`` are one category, ``job``.

    Every row must then have exactly one 1 among them, and 0 otherwise.
    """
    if len(names) != rows.shape[1]:
        raise DataError(
            f"{len(names)} names for {rows.shape[1]} columns", where=where, remedy="give one name per column"
        )
    features: list[Feature] = []
    column = 0
    for (name, categorical), block in groupby(map(_parted, names), key=lambda one: (one[0], bool(one[1]))):
        values = [value for _, value in block]
        if categorical:
            _one_hot(rows[:, column : column + len(values)], name, where)
            features.append(Feature(name, tuple(values)))
        else:
            features += [Feature(name) for _ in values]
        column += len(values)
    distinct(names, where=where)
    return tuple(features)


def distinct(names: Sequence[str], *, where: str) -> None:
    """Refuse column names that are empty or duplicated."""
    for i, name in enumerate(names):
        if not name or name in names[:i]:
            what = f"column {i + 1} has no name" if not name else f"two columns are named {name!r}"
            raise DataError(what, where=where, remedy="give every column its own name")


def measured(features: Sequence[Feature], rows: npt.NDArray[Any]) -> tuple[Feature, ...]:
    """The features with the spread of their numbers over these rows, which are not changed."""
    return tuple(
        feature if feature.categories else replace(feature, spread=std)
        for feature, (_, std) in zip(features, _moments(features, rows), strict=True)
    )


def standardised(
    train: Arrays, test: Arrays, features: Sequence[Feature]
) -> tuple[Arrays, Arrays, tuple[Feature, ...]]:
    """Numbers as ``(x − mean) / std`` of their column **over the train rows**, for both; one-hot columns stay.

    The features store mean and std, so that values can be shown in their original unit. A column that is
    constant over the train rows is only shifted.
    """
    shift, scale = np.zeros(train.inputs.shape[1]), np.ones(train.inputs.shape[1])
    ready, column = [], 0
    for feature, (mean, std) in zip(features, _moments(features, train.inputs), strict=True):
        if not feature.categories:
            shift[column], scale[column] = mean, std or 1.0
            feature = replace(feature, spread=1.0 if std else 0.0, offset=mean, unit=std or 1.0)
        ready.append(feature)
        column += feature.width
    train, test = (Arrays(((a.inputs - shift) / scale).astype(np.float32), a.labels) for a in (train, test))
    return train, test, tuple(ready)


def _moments(features: Sequence[Feature], rows: npt.NDArray[Any]) -> list[tuple[float, float]]:
    """Mean and standard deviation of the first column of each feature; deviation 0 where it is only rounding."""
    firsts = np.cumsum([0, *(feature.width for feature in features)])[:-1]
    columns = rows[:, firsts].astype(np.float64)
    mean, std = columns.mean(0), columns.std(0)
    std = np.where(std <= ROUNDING * np.abs(columns).max(0), 0.0, std)
    return list(zip(mean.tolist(), std.tolist(), strict=True))


def _parted(name: str) -> tuple[str, str]:
    head, _, value = name.partition("=")
    return (head, value) if head and value else (name, "")


def _one_hot(block: npt.NDArray[Any], name: str, where: str) -> None:
    wrong = ~(((block == 0) | (block == 1)).all(1) & (block.sum(1) == 1))
    if wrong.any():
        raise DataError(
            f"row {int(wrong.argmax())} does not have exactly one 1 among the columns {name}=…",
            where=where,
            remedy=f"make {name} one-hot, or leave '=' out of the names of numbers",
        )
