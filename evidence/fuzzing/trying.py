"""Trying one reader on many changed files: every failure, with what makes it again."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from evidence.fuzzing.readers import Reader
from evidence.fuzzing.watching import WATCH, alarm, forget_peak, peak_megabytes
from leakgauge.errors import LeakgaugeError

SECONDS = 5.0
"""Processor time after which a reader hangs."""
PATIENCE = 30.0
"""Seconds of any kind after which it is interrupted; other programs may have the processors."""
MEGABYTES = 1024.0


@dataclass(frozen=True)
class Failure:
    """An answer that is neither a result nor a clear error; ``seed`` and ``reader`` make it again."""

    reader: str
    seed: int
    what: str
    content: bytes

    def __str__(self) -> str:
        return f"{self.reader}, seed {self.seed}: {self.what} on {self.content[:200]!r}"


def fuzz(reader: Reader, seeds: Iterable[int], folder: Path) -> list[Failure]:
    """The failures of a reader on as many changed files as there are seeds."""
    _warm(reader, folder)
    failures, before = [], peak_megabytes()
    forget_peak()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            rng = Random(f"{reader.name} {seed}")
            name, content = reader.changed(rng)
            for what in _answer(reader, name, content, folder):
                failures.append(Failure(reader.name, seed, what, content))
            if (grown := peak_megabytes() - before) > MEGABYTES:
                failures.append(Failure(reader.name, seed, f"takes {grown:.0f} MB", content))
                forget_peak()
    return failures


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where the system has one: most of the time would be spent waiting for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder) / "work"


def tried(reader: Reader, content: bytes, folder: Path) -> list[str]:
    """What is wrong with the answer of a reader to one content, for whoever makes contents otherwise."""
    _warm(reader, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _answer(reader, next(iter(reader.files)), content, folder)


_warmed: set[str] = set()


def _warm(reader: Reader, folder: Path) -> None:
    """Read the valid files once, however long it takes: what is imported late is imported now."""
    folder.mkdir(parents=True, exist_ok=True)
    if reader.name not in _warmed:
        for name, content in reader.files.items():
            with suppress(LeakgaugeError, AssertionError, LookupError):  # a bad one is measured later
                reader.read(reader.written(folder, name, content))
        _warmed.add(reader.name)


def _answer(reader: Reader, name: str, content: bytes, folder: Path) -> list[str]:
    path, wrong = reader.written(folder, name, content), list[str]()
    begun = time.process_time()
    with WATCH.on(folder) as events:
        try:
            with alarm(PATIENCE):
                reader.read(path)
        except LeakgaugeError as fault:
            wrong += _unclear(str(fault))
        except Exception as fault:
            wrong.append(f"{type(fault).__name__}: {str(fault)[:160]}")
    spent = time.process_time() - begun
    if spent > SECONDS:
        wrong.append(f"takes {spent:.1f} s")
    return wrong + [f"does what no reader may: {event}" for event in events]


def _unclear(message: str) -> list[str]:
    return ["an empty message"] if not message.strip() else []
