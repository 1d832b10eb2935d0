"""The binary format of CIFAR-10: records of one label byte and 3 x 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from leakgauge.data.arrays import Arrays
from leakgauge.errors import DataError
from leakgauge.storage.streams import reading

RECORD = 1 + 3 * 32 * 32
CLASSES = 10


def read_cifar(paths: Sequence[Path]) -> Arrays:
    """The records of one or more CIFAR-10 batches, in order.

    Each record takes 3,073 bytes: the class, then the red, green and blue planes row by row. The
    format has no header, so its only checks are a whole number of records and classes below ten.

    References:
        Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    batches = [_batch(path) for path in paths]
    rows = np.concatenate(batches)
    return Arrays(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64))


def _batch(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    with reading(path):
        content = path.read_bytes()
    if not content or len(content) % RECORD:
        raise DataError(
            f"has {len(content)} bytes, not a whole number of {RECORD}-byte records",
            where=str(path),
            remedy="get the binary version of CIFAR-10 again",
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    if int(rows[:, 0].max()) >= CLASSES:
        bad = int(np.argmax(rows[:, 0] >= CLASSES))
        raise DataError(
            f"record {bad} has class {rows[bad, 0]}, not 0..{CLASSES - 1}",
            where=str(path),
            remedy="get the binary version of CIFAR-10 again",
        )
    return rows
