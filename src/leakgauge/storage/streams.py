"""Reading bytes that may be cut short, packed or hostile: one DataError, never a traceback."""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from leakgauge.errors import DataError

CHUNK = 1 << 20
DEFLATE = 1032
"""No deflate stream grows by more than this factor; a header that promises more lies."""
PACKED = 64 << 20
"""Bytes that any file may unpack to. Weights and pictures barely compress: beyond this, what grows by more than
:data:`GROWTH` is a bomb or a mistake."""
GROWTH = 100

_FAULTS = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    LookupError,
    OverflowError,
    MemoryError,
    SyntaxError,
    TypeError,  # Pillow, on a tag whose number is not whole
    tokenize.TokenError,  # numpy reads the header of an array as Python
    struct.error,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@contextmanager
def reading(path: Path, remedy: str = "download or copy the file again") -> Iterator[None]:
    """Turn what the standard library raises on a broken file into one DataError that names it."""
    regular(path)
    try:
        yield
    except FileNotFoundError:
        raise DataError("no such file or folder", where=str(path), remedy="check the path") from None
    except _FAULTS as fault:
        message = (fault.strerror if isinstance(fault, OSError) else None) or str(fault) or type(fault).__name__
        reason = message.splitlines()[0].rstrip(":")  # tarfile lists every method it tried
        raise DataError(f"cannot be read ({reason})", where=str(path), remedy=remedy) from None


def regular(path: Path) -> None:
    """Refuse pipes and devices: reading one may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError("is no regular file", where=str(path), remedy="copy it to a file first")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file as a stream of bytes; a gzip'ed one is unpacked on the way, whatever its name."""
    with reading(path), path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.open(raw) as stream:
                # GzipFile is a stream of bytes in all but its declared type
                yield stream  # type: ignore[misc]
        else:
            yield raw


def most(path: Path) -> int:
    """The most bytes that ``path`` may unpack to; what a header may promise."""
    size = path.stat().st_size
    return min(DEFLATE * size, allowed(size))


def allowed(packed: int) -> int:
    """The most bytes that so many packed ones may become."""
    return max(PACKED, GROWTH * packed)


def take(stream: IO[bytes], size: int) -> bytearray:
    """The next ``size`` bytes, or fewer at the end of the stream.

    In chunks: ``stream.read(size)`` would allocate whatever a hostile header promises.
    """
    taken = bytearray()
    while len(taken) < size:
        chunk = stream.read(min(CHUNK, size - len(taken)))
        if not chunk:
            break
        taken += chunk
    return taken
