"""Private files: readable by their owner only, and there whole or not at all.

Run folders and reports hold private records. This module knows neither torch nor safetensors, so that commands which
only read a run folder start at once.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakgauge.errors import LeakgaugeError

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")
"""The name of a file that is being written."""


_WITHIN = ("cells", "claims", "log.jsonl")
"""What a run writes into without replacing it: as links, these could have it write elsewhere."""


def swept(folder: Path) -> None:
    """Remove what a killed process left half written in a folder: it may hold what the whole file would."""
    for left in folder.glob(".*") if folder.is_dir() else ():
        if _TEMPORARY.fullmatch(left.name) and left.is_file():
            left.unlink(missing_ok=True)


def prepare(folder: Path) -> None:
    """A private folder (mode 0700), made or tightened; one that cannot be used is refused with the reason."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name == "posix" and folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
        effective = os.access in os.supports_effective_ids
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if links := [name for name in _WITHIN if (folder / name).is_symlink()]:
            raise LeakgaugeError(
                f"{links[0]} is a link, which may lead out of it", where=str(folder), remedy="remove the link"
            )
        if files := [name for name in _WITHIN[:2] if (folder / name).exists() and not (folder / name).is_dir()]:
            raise LeakgaugeError(f"{files[0]} is no folder", where=str(folder), remedy="remove it")
    except OSError as fault:
        reason = "it is a file" if isinstance(fault, FileExistsError) else fault.strerror
        remedy = "give a folder that you can write to"
        raise LeakgaugeError(f"cannot hold a run ({reason})", where=str(folder), remedy=remedy) from None


def write(path: Path, content: bytes) -> None:
    """Write a private file (mode 0600) so that it is there whole or not at all, whenever the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _write(path, content)
    except FileNotFoundError:  # a run that began in the folder has swept what was half written: once more
        if not path.parent.is_dir():
            raise
        _write(path, content)


def _write(path: Path, content: bytes) -> None:
    with naming(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp gives mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system name this file: a full disk names none, a rename a temporary one that nobody knows."""
    try:
        yield
    except OSError as fault:
        if not fault.errno:
            raise
        raise OSError(fault.errno, fault.strerror, str(path)) from None  # of the kind that the number stands for
