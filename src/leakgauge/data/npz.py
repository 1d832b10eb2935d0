"""Records from an ``.npz`` file; nothing in it is ever unpickled."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from leakgauge.data.arrays import MOST_CLASSES, Arrays, checked
from leakgauge.data.tables import checked_rows, described, measured
from leakgauge.errors import DataError
from leakgauge.storage.npz import array_of, bounded
from leakgauge.storage.streams import reading
from leakgauge.types import Feature

TRAIN = (("inputs", "labels"), ("x", "y"), ("x_train", "y_train"))
TEST = (("test_inputs", "test_labels"), ("x_test", "y_test"))


@dataclass(frozen=True)
class Npz:
    """The contents of an ``.npz`` file: records, its own test records if any, the number of classes if given.

    ``features`` describe the columns of a table, with the spread of the train records; images have none.
    """

    train: Arrays
    test: Arrays | None
    classes: int | None
    features: tuple[Feature, ...] = ()


def read_npz(path: Path) -> Npz:
    """Records under ``inputs`` and ``labels`` (or ``x`` and ``y``, or ``x_train`` and ``y_train``).

    Optional: ``test_inputs`` and ``test_labels`` (or ``x_test`` and ``y_test``), and the number
    ``classes``, for files without records of the last class. Images are uint8, or floats in [0, 1]. Inputs
    ``[n, columns]`` are rows of a table: any finite numbers, used unchanged; ``columns`` may name them, and
    neighbours named ``job=clerk``, ``job=nurse`` are one category. Objects are refused before they are
    read, because unpickling them would run code.
    """
    with reading(path, "save it again with numpy.savez"), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        bounded(path, members.values())
        pair = _pair(TRAIN, members)
        if pair is None:
            raise DataError(
                f"has the keys {', '.join(sorted(members)) or 'none'}",
                where=str(path),
                remedy="save the records under the keys inputs and labels",
            )
        other = _pair(TEST, members)
        arrays = {key: array_of(path, archive, members[key]) for key in (*pair, *(other or ()))}
        classes = array_of(path, archive, members["classes"]) if "classes" in members else None
        names = array_of(path, archive, members["columns"], "U") if "columns" in members else None
    train = _checked(arrays[pair[0]], arrays[pair[1]], where=f"{path}, {pair[0]}")
    test = _checked(arrays[other[0]], arrays[other[1]], where=f"{path}, {other[0]}") if other else None
    features = _features(path, names, train.inputs) if train.inputs.ndim == 2 else ()
    return Npz(train, test, _classes(path, classes), features)


def _checked(inputs: npt.NDArray[Any], labels: npt.NDArray[Any], *, where: str) -> Arrays:
    return (checked_rows if inputs.ndim == 2 else checked)(inputs, labels, where=where)


def _features(path: Path, names: npt.NDArray[Any] | None, rows: npt.NDArray[Any]) -> tuple[Feature, ...]:
    where = f"{path}, columns"
    if names is not None and names.ndim != 1:
        raise DataError(f"names of shape {names.shape}", where=where, remedy="save one text per column")
    texts = [f"column {i}" for i in range(rows.shape[1])] if names is None else [str(name).strip() for name in names]
    return measured(described(texts, rows, where=where), rows)


def _pair(pairs: tuple[tuple[str, str], ...], members: dict[str, zipfile.ZipInfo]) -> tuple[str, str] | None:
    return next((pair for pair in pairs if pair[0] in members and pair[1] in members), None)


def _classes(path: Path, stored: npt.NDArray[Any] | None) -> int | None:
    if stored is None:
        return None
    if stored.shape != () or stored.dtype.kind not in "iu" or not 0 < int(stored) <= MOST_CLASSES:
        raise DataError("classes is not one positive integer", where=str(path), remedy="save classes as one number")
    return int(stored)
