"""Claims on cells in a shared folder: files with a lease, judged by what changes and never by a clock.

``claims/<cell>.<generation>`` is created with ``O_EXCL``, so that exactly one process gets it. Its holder rewrites it
while it works. Whoever waits counts the time for which it has *watched* the file without a change; after a whole lease
the claim has expired, and one of those who wait creates the next generation. Clocks of machines are never compared and
a jump of one counts as a single look. A holder that was only stopped, not dead, finishes the cell a second time, with
the same bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from leakgauge.storage.private import write

FOLDER = "claims"
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
MOST = 3
"""A cell whose holders were lost this often is not tried again."""


@dataclass
class Watch:
    """How long a claim has been watched without a change.

    A look counts for the time since the last one, but for two pauses at most: who was stopped, or whose clock jumped,
    has not watched in between.
    """

    pause: float
    _content: bytes | None = None
    _last: float = 0.0
    _watched: float = 0.0

    def unchanged(self, content: bytes, now: float) -> float:
        """Seconds without a change, after one more look."""
        if content != self._content:
            self._content, self._watched = content, 0.0
        else:
            self._watched += min(max(now - self._last, 0.0), 2 * self.pause)
        self._last = now
        return self._watched


def _content(path: Path) -> bytes:
    """What a claim or a fault says: at most 64 kB, neither through a link nor out of a pipe, which may never end."""
    with open(os.open(path, os.O_RDONLY | _SAFE), "rb") as file:
        return file.read(1 << 16)


def forget(folder: Path) -> None:
    """Remove all claims and faults of a run folder; nobody else may be at work in it."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


@dataclass(frozen=True)
class Claims:
    """The claims of one process on the cells of a run folder."""

    folder: Path
    lease: float
    """Seconds without a sign of life after which a claim has expired."""
    holder: str = field(default_factory=lambda: f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(4)}")
    _watches: dict[str, Watch] = field(default_factory=dict, repr=False)

    @property
    def pause(self) -> float:
        """Seconds between two looks at claims of others."""
        return min(self.lease / 10, 1.0)

    @property
    def place(self) -> Path:
        return self.folder / FOLDER

    def take(self, identity: str) -> Path | None:
        """A claim on a cell, if nobody has one or the last one has expired."""
        self.place.mkdir(mode=0o700, exist_ok=True)
        last = self._last(identity)
        if last is None:
            return self._create(identity, 0)
        try:
            content = _content(last)
        except OSError:  # released meanwhile
            return None
        watch = self._watches.setdefault(last.name, Watch(self.pause))
        if watch.unchanged(content, time.monotonic()) < self.lease:
            return None
        generation = int(last.suffix[1:]) + 1
        if generation >= MOST:
            self.fail(identity, f"{MOST} processes that ran it died or stopped (out of memory?)")
            return None
        return self._create(identity, generation)

    @contextmanager
    def held(self, claim: Path) -> Iterator[None]:
        """Renew a claim while its cell is computed, then release it and those it follows."""
        done = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(claim, done), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            done.set()
            renewing.join()
            for generation in range(int(claim.suffix[1:]) + 1):
                claim.with_suffix(f".{generation}").unlink(missing_ok=True)

    def fail(self, identity: str, fault: str) -> None:
        """Tell everybody that a cell failed."""
        write(self.place / f"{identity}.failed", fault.encode(errors="replace"))

    def fault(self, identity: str) -> str | None:
        """The fault of a cell that failed in any process."""
        try:
            return _content(self.place / f"{identity}.failed").decode(errors="replace")
        except OSError:  # there is none; what is no plain file is none of ours
            return None

    def _last(self, identity: str) -> Path | None:
        """The latest generation of a claim. They are few: looking for each name costs less than a listing."""
        paths = (self.place / f"{identity}.{generation}" for generation in reversed(range(MOST)))
        return next((path for path in paths if path.exists()), None)

    def _create(self, identity: str, generation: int) -> Path | None:
        path = self.place / f"{identity}.{generation}"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return None
        with os.fdopen(handle, "w") as file:
            file.write(f"{self.holder} 0")
        return path

    def _renew(self, claim: Path, done: threading.Event) -> None:
        renewals = 0
        while not done.wait(self.lease / 6):
            renewals += 1
            # opened anew each time: network file systems show others what was closed. Never created anew: whoever took
            # over has removed it
            with suppress(OSError), open(os.open(claim, os.O_WRONLY | _SAFE), "w") as file:
                file.write(f"{self.holder} {renewals}")
