"""The lock of a run folder: one plain run at a time, or any number that share it.

The lock is the system's (``flock``), so that it ends with the process that held it, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakgauge.errors import LeakgaugeError

LOCK = ".lock"
JOINING = ".joining"
"""Held, briefly, by whoever joins or leaves a folder that is shared."""


@contextmanager
def locked(folder: Path, remedy: str = "") -> Iterator[None]:
    """Hold the lock of a folder; refused while another process holds it. Nothing has to be cleaned up after a kill.

    ``remedy`` is for commands that have other options than an audit.
    """
    with _handle(folder / LOCK) as handle:
        if not _hold(handle):
            raise _taken(folder, remedy)
        yield


class SharedLock:
    """The lock of a folder, held together with other processes that share it.

    ``joining`` and ``leaving`` exclude each other in all processes that share the folder; both say whether this process
    is alone in it, so that the first can prepare the folder and the last can tidy up.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    @contextmanager
    def joining(self) -> Iterator[bool]:
        """Take the lock, refused while a plain run holds it; True if nobody else shares the folder."""
        with self._turn():
            handle = _opened(self.folder / LOCK)
            self._lock = handle
            try:
                alone = _hold(handle)
                if not alone and not _hold(handle, shared=True):
                    raise _taken(self.folder)
                yield alone
                if alone and not _hold(handle, shared=True):  # not atomic: a plain run may come between
                    raise _taken(self.folder)
            except BaseException:
                self.close()
                raise

    @contextmanager
    def leaving(self) -> Iterator[bool]:
        """Give the lock back; True if nobody else shares the folder any more."""
        try:
            with self._turn():
                yield self._lock is not None and _hold(self._lock)
        finally:
            self.close()

    def close(self) -> None:
        """Give the lock back at once."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with _handle(self.folder / JOINING) as handle:
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX)
            except (ImportError, OSError):
                raise LeakgaugeError(
                    "this system or this file system has no locks that can be shared",
                    where=str(self.folder),
                    remedy="run one audit there, with --workers",
                ) from None
            yield


@contextmanager
def _handle(path: Path) -> Iterator[int]:
    handle = _opened(path)
    try:
        yield handle
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    """A handle of a lock file. A link is not followed: it could lead out of the folder."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as fault:
        if not path.is_symlink():
            raise
        raise LeakgaugeError(f"is a link ({fault.strerror})", where=str(path), remedy="remove it") from None


def _taken(folder: Path, remedy: str = "") -> LeakgaugeError:
    shared = "wait until it has ended, or give another --out; several can share a folder if all say --engine shared"
    what = "another run is at work in it" if remedy else "another audit is running in it"
    return LeakgaugeError(what, where=str(folder), remedy=remedy or shared)


def _hold(handle: int, *, shared: bool = False) -> bool:
    try:
        import fcntl
    except ImportError:
        return _hold_on_windows(handle)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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
