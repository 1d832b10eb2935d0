"""One run at a time in a run folder; the lock is the system's, so that it ends with the process that held it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakgauge.errors import LeakgaugeError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; refused while another process holds it. Nothing has to be cleaned up after a kill."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _hold(handle):
            raise LeakgaugeError(
                "another audit is running in it",
                where=str(folder),
                remedy="wait until it has ended, or give another --out",
            )
        yield
    finally:
        os.close(handle)


def _hold(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return _hold_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: better no lock than no audit
        return True
    return True


def _hold_on_windows(handle: int) -> bool:
    import msvcrt

    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True
