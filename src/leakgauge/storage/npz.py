"""Arrays in an ``.npz`` file, whose every size is only a claim; nothing in it is ever unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from leakgauge.errors import DataError
from leakgauge.storage.streams import DEFLATE, allowed


def bounded(path: Path, members: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse an archive that would fill memory: what its members unpack to, all together, against its size."""
    size, total = path.stat().st_size, sum(info.file_size for info in members)
    if total > DEFLATE * size:
        raise DataError(
            f"declares {total} bytes, which exceeds the size of the file", where=str(path), remedy="save it again"
        )
    if total > allowed(size):
        raise DataError(
            f"unpacks {size} bytes to {total}", where=str(path), remedy="save it unpacked, with numpy.savez"
        )


def array_of(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, kinds: str = "iuf") -> npt.NDArray[Any]:
    """One array of numbers (or of texts, ``kinds="U"``), read after its header agrees with its size."""
    where = f"{path}, {info.filename}"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError("is packed in an unusual way", where=where, remedy="save it with numpy.savez_compressed")
    # an entry cannot be larger than its file: both sizes in a zip directory are only claims
    if info.file_size > DEFLATE * (min(info.compress_size, path.stat().st_size) + 1):
        raise DataError(
            f"declares {info.file_size} bytes, which exceeds the size of the file", where=where, remedy="save it again"
        )
    with archive.open(info) as stream:
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise DataError(f"is npy of version {version}", where=where, remedy="save plain numbers with numpy.savez")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if dtype.hasobject or dtype.kind not in kinds:
            plain = "numbers" if kinds == "iuf" else "texts"
            raise DataError(f"holds {dtype} values", where=where, remedy=f"save plain {plain}; objects are never read")
        size = math.prod(shape) * dtype.itemsize
        left = info.file_size - stream.tell()
        if min(shape, default=0) < 0 or size != left:
            raise DataError(f"declares the shape {shape} but holds {left} bytes", where=where, remedy="save it again")
        body = stream.read()
    if len(body) != size:
        raise DataError(
            f"ends after {len(body)} of {size} bytes", where=where, remedy="download or copy the file again"
        )
    if dtype.kind == "U" and not _is_unicode(np.frombuffer(body, dtype.str[0] + "u4")):
        raise DataError("holds letters that do not exist", where=where, remedy="save it again")
    flat = np.frombuffer(body, dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _is_unicode(codes: npt.NDArray[np.uint32]) -> bool:
    """Whether every number is that of a letter: within Unicode, and no half of a pair."""
    return not bool(((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any())
