"""A table from a CSV file: named columns, numbers or categories, one of them the label."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from leakgauge.data.arrays import Arrays
from leakgauge.data.tables import MOST_COLUMNS, distinct
from leakgauge.errors import DataError
from leakgauge.storage.streams import reading
from leakgauge.types import Feature

LABELS = ("label", "target")
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
MOST_BYTES = 1 << 26
MOST_CATEGORIES = 256
MOST_ENTRIES = 1 << 27


@dataclass(frozen=True)
class Table:
    """The contents of a CSV file: rows ``[n, columns]`` with one-hot categories, their features, the class names."""

    arrays: Arrays
    features: tuple[Feature, ...]
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class _Column:
    """The cells of one column, and their line numbers."""

    path: Path
    name: str
    cells: Sequence[str]
    lines: Sequence[int]

    def fault(self, i: int, what: str, remedy: str) -> DataError:
        return DataError(what, where=f"{self.path}, line {self.lines[i]}, column {self.name!r}", remedy=remedy)


def read_csv(path: Path) -> Table:
    """Rows of a CSV file whose first line names the columns; separated by commas, semicolons or tabs, in UTF-8.

    The label is the column ``label`` or ``target``, otherwise the last one; its values are the classes, in order. A
    column of numbers is numeric; a column of texts is categorical, one-hot in alphabetical order. A text in a numeric
    column, a missing value, and a row that is too short or too long are refused with line and column.
    """
    with reading(path, "save it as CSV in UTF-8"):
        if path.stat().st_size > MOST_BYTES:
            raise DataError(
                f"is larger than {MOST_BYTES >> 20} MB",
                where=str(path),
                remedy="take a sample of its rows, or save .npz",
            )
        columns = _columns(path)
    position = next((i for i, column in enumerate(columns) if column.name.lower() in LABELS), len(columns) - 1)
    labels, class_names = _classes(columns.pop(position))
    values = [_values(column) for column in columns]
    width = sum(len(names) or 1 for _, names in values)
    if width > MOST_COLUMNS or width * len(labels) > MOST_ENTRIES:
        raise DataError(
            f"has {len(labels)} rows of {width} columns, one-hot ones included",
            where=str(path),
            remedy="leave columns out, or take a sample of its rows",
        )
    blocks = [np.eye(len(names))[numbers.astype(int)] if names else numbers[:, None] for numbers, names in values]
    features = tuple(Feature(column.name, names) for column, (_, names) in zip(columns, values, strict=True))
    return Table(Arrays(np.concatenate(blocks, 1), labels), features, class_names)


def _columns(path: Path) -> list[_Column]:
    """The cells of a file, column by column."""
    rows: list[list[str]] = []
    lines: list[int] = []
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = stream.readline()
        stream.seek(0)
        reader = csv.reader(stream, delimiter=max(",;\t", key=first.count), strict=True)
        try:
            for row in reader:
                if row:
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
        except csv.Error as fault:
            raise DataError(
                f"cannot be read ({fault})", where=f"{path}, line {reader.line_num}", remedy="save it again as CSV"
            ) from None
    _head(path, rows)
    names, body = rows[0], rows[1:]
    for row, line in zip(body, lines[1:], strict=True):
        if len(row) != len(names):
            raise DataError(
                f"has {len(row)} cells, the first line names {len(names)} columns",
                where=f"{path}, line {line}",
                remedy="give every row one cell per column; quote cells that hold the separator",
            )
    return [_Column(path, name, [row[i] for row in body], lines[1:]) for i, name in enumerate(names)]


def _head(path: Path, rows: list[list[str]]) -> None:
    where = f"{path}, line 1"
    if len(rows) < 2:
        raise DataError("contains no records", where=str(path), remedy="give a line of names, then one line per record")
    names = rows[0]
    if not 2 <= len(names) <= MOST_COLUMNS:
        raise DataError(
            f"names {len(names)} columns",
            where=where,
            remedy=f"give a feature and a label at least, and at most {MOST_COLUMNS:,} columns",
        )
    if any(_number(name) is not None for name in names):
        raise DataError("contains numbers, not names", where=where, remedy="begin with a line that names the columns")
    distinct(names, where=where)


def _values(column: _Column) -> tuple[npt.NDArray[np.float64], tuple[str, ...]]:
    """Numbers and no categories, or positions among categories."""
    numbers = [_number(cell) for cell in column.cells]
    for i, cell in enumerate(column.cells):
        if cell.lower() in MISSING:
            raise column.fault(i, "is missing", "leave the row or the column out, or fill it in")
    others = [i for i, number in enumerate(numbers) if number is None]
    if not others:
        return np.array(numbers, dtype=np.float64), ()
    if 2 * len(others) <= len(numbers):
        raise column.fault(
            others[0],
            f"is {_short(column.cells[others[0]])}, most others are finite numbers",
            "fix the cell; in a category, begin every value with a letter",
        )
    names = tuple(sorted(set(column.cells)))
    if len(names) > MOST_CATEGORIES:
        raise DataError(
            f"has {len(names):,} different texts",
            where=f"{column.path}, column {column.name!r}",
            remedy=f"leave it out if it names records; a category has at most {MOST_CATEGORIES}",
        )
    position = {name: i for i, name in enumerate(names)}
    return np.array([position[cell] for cell in column.cells], dtype=np.float64), names


def _classes(column: _Column) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Labels, and the names of their classes in order: by number where all are numbers."""
    numbers = [_number(cell) for cell in column.cells]
    for i, (cell, number) in enumerate(zip(column.cells, numbers, strict=True)):
        if cell.lower() in MISSING:
            raise column.fault(i, "is missing", "give every record a label")
        if number is not None and not number.is_integer():
            raise column.fault(i, f"is {_short(cell)}, not a class", "name the column of classes 'label' or 'target'")
    if all(number is not None for number in numbers):
        values, positions = np.unique(np.array(numbers, dtype=np.float64), return_inverse=True)
        names = tuple(f"{value:.0f}" for value in values)
    else:
        texts, positions = np.unique(np.array(column.cells), return_inverse=True)
        names = tuple(map(str, texts))
    if len(names) > MOST_CATEGORIES:
        raise DataError(
            f"has {len(names):,} classes",
            where=f"{column.path}, column {column.name!r}",
            remedy="name the column of classes 'label' or 'target'",
        )
    return positions.astype(np.int64), names


def _number(cell: str) -> float | None:
    """A finite number, or None; ``1_000``, which Python would read, is a text."""
    try:
        number = float(cell) if "_" not in cell else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}…")
