"""What a reader must not do while it reads: start programs, open connections, import, write elsewhere."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

FORBIDDEN = frozenset({
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen",
    "pickle.find_class",
    "socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request", "webbrowser.open", "os.putenv", "os.kill",
})  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = frozenset(
    {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate"}
)


class Watch:
    """What happened that must not, since the last look. One hook per process: Python cannot remove them."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.thread = 0
        self.events: list[str] = []
        self.installed = False

    @contextmanager
    def on(self, folder: Path) -> Iterator[list[str]]:
        """Watch this thread; it may write below ``folder`` only."""
        if not self.installed:
            sys.addaudithook(self._hear)
            self.installed = True
        self.events = []
        self.thread, self.folder = threading.get_ident(), _real(str(folder))
        try:
            yield self.events
        finally:
            self.folder = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or threading.get_ident() != self.thread:
            return
        if event in FORBIDDEN:
            self.events.append(f"{event} {str(arguments)[:80]}")
        elif event == "import" and _foreign(str(arguments[0])):
            self.events.append(f"imports {arguments[0]}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            self._outside("writes", arguments[0])
        elif event in CHANGES:
            self._outside(event, arguments[0])

    def _outside(self, verb: str, path: Any) -> None:
        if isinstance(path, int):
            return
        folder, self.folder = self.folder, None  # resolving a path is heard, too
        where = os.path.realpath(os.fsdecode(path))
        self.folder = folder
        assert folder is not None
        if where != folder and not where.startswith(f"{folder}{os.sep}") and where != os.devnull:
            self.events.append(f"{verb} {where}")


@cache
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _foreign(module: str) -> bool:
    """Whether a module is neither of Python nor of a package that is loaded already."""
    root = module.partition(".")[0]
    return root not in sys.stdlib_module_names and root not in sys.modules


WATCH = Watch()


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer; only in the main thread, elsewhere nothing happens."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def forget_peak() -> None:
    """Let the peak of memory begin anew, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    """The largest memory of this process since :func:`forget_peak`, or since its start."""
    with suppress(OSError), open("/proc/self/status", "rb", buffering=0) as status:
        _, mark, rest = status.read(4096).partition(b"VmHWM:")
        if mark:
            return int(rest.split(None, 1)[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
