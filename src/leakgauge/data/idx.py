"""The IDX format of MNIST and Fashion-MNIST: a magic number, the shape, then the bytes."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from leakgauge.data.arrays import Arrays, checked
from leakgauge.errors import DataError
from leakgauge.storage.streams import most, opened, take

_UNSIGNED = 0x08


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes, plain or gzip'ed.

    ``00 00 08 rank``, then ``rank`` big-endian 32-bit sizes, then exactly that many bytes, neither fewer
    nor more. Nothing is allocated on the basis of the header alone.

    References:
        LeCun, Cortes and Burges, The MNIST database of handwritten digits, section "File formats".
    """
    with opened(path) as stream:
        head = bytes(take(stream, 4))
        if len(head) < 4 or head[:2] != b"\0\0":
            raise _fault(path, f"does not start like an IDX file ({head.hex(' ') or 'it is empty'})")
        if head[2] != _UNSIGNED or not 1 <= head[3] <= 4:
            raise _fault(path, f"is IDX of type 0x{head[2]:02x} and rank {head[3]}, not unsigned bytes of rank 1 to 4")
        sizes = take(stream, 4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise _fault(path, "ends inside its header")
        shape = struct.unpack(f">{head[3]}I", sizes)
        size = math.prod(shape)
        if size > most(path):
            raise _fault(path, f"declares the shape {shape}, which exceeds the size of the file")
        body = take(stream, size)
        if len(body) < size:
            raise _fault(path, f"ends after {len(body)} of {size} bytes")
        if stream.read(1):
            raise _fault(path, f"has extra data after its {size} bytes")
        return np.frombuffer(body, np.uint8).reshape(shape)  # numpy refuses some shapes of no entries


def read_idx_pair(images: Path, labels: Path) -> Arrays:
    """The images and labels of two IDX files that belong together."""
    return checked(read_idx(images), read_idx(labels), where=f"{images} with {labels.name}")


def write_idx(path: Path, array: npt.NDArray[np.uint8]) -> None:
    """Write unsigned bytes as IDX, gzip'ed if ``path`` ends in ``.gz``; the same array gives the same bytes."""
    content = bytes((0, 0, _UNSIGNED, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content, compresslevel=9, mtime=0) if path.suffix == ".gz" else content)


def _fault(path: Path, what: str) -> DataError:
    return DataError(what, where=str(path), remedy="download the file again")
