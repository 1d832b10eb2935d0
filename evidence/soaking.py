"""Audits that are killed at random moments and resumed until they are finished; what they leave, byte by byte."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.ray_cluster import contents

SPEC = """
[task]
model = "mlp(width=8, depth=1)"
records = 20
[checkpoints]
train_steps = [0, 5]
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
generic = "inverting_gradients(steps=20)"
tuned = ["adaptive(steps=10)", "adaptive(steps=15)"]
"""
SPAN = (0.05, 0.7)
"""When a kill comes, as shares of the time of an undisturbed run."""
ATTEMPTS = 3
"""Starts per kill at most: one that had nothing left to do is not counted."""


@dataclass(frozen=True)
class Way:
    """A way to run an audit: the words for it, and how many commands run it together."""

    name: str
    words: tuple[str, ...] = ()
    commands: int = 1


WAYS = (
    Way("one process"),
    Way("two workers", ("--workers", "2")),
    Way("a shared folder", ("--engine", "shared"), 2),
)


@dataclass(frozen=True)
class Soaked:
    """What kills did to one way of running: those that hit a running process, runs that were finished, and files in
    these that differ from an undisturbed run."""

    kills: int
    finished: int
    different: int
    cells: int


def started(words: Sequence[str]) -> int:
    """Run the program in a new process and process group. It is a copy of this one, which has imported everything:
    a kill hits the audit, not the import of torch."""
    import torch

    import leakgauge.attacks
    import leakgauge.audit.auditing
    import leakgauge.cli
    import leakgauge.report
    import leakgauge.study.draft

    torch.set_num_threads(1)  # a copy has no other threads
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        answer = leakgauge.cli.app(list(words), standalone_mode=False)
        code = answer if isinstance(answer, int) else 0
    finally:
        os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """The exit code of a process (negative: the signal), or None if it still runs after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.01)


def soak(way: Way, kills: int, home: Path, say: Callable[[str], None], seed: int = 0) -> Soaked:
    """Kill audits until so many kills hit a running process; every run is finished in the end, and compared."""
    chance = random.Random(f"{way.name} {seed}")
    (home / "spec.toml").write_text(SPEC)
    command = ("audit", str(home / "spec.toml"), *way.words, "--quiet", "--out")
    begun = time.monotonic()
    _finish(command, home / "whole")
    whole, expected = time.monotonic() - begun, _compared(home / "whole")
    hits, different, finished, run = 0, 0, 0, home / "run0"
    for _ in range(ATTEMPTS * kills):
        if hits == kills:
            break
        processes = [started([*command, str(run)]) for _ in range(way.commands)]
        wait = chance.uniform(*SPAN) * whole
        codes = [ended(pid, wait if place == 0 else 0.0) for place, pid in enumerate(processes)]
        for pid, code in zip(processes, codes, strict=True):
            if code is None:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        hits += None in codes
        if None not in codes:  # it was finished before
            finished, different = finished + 1, different + _differing(_compared(run), expected)
            run = home / f"run{finished}"
        elif hits % 5 == 0:
            say(f"{way.name}: {hits} of {kills} kills, {len(list(run.glob('cells/*.json')))} cells done")
    _finish(command, run)
    different += _differing(_compared(run), expected)
    return Soaked(hits, finished + 1, different, sum(name.endswith(".json") for name in expected))


def _finish(command: Sequence[str], run: Path) -> None:
    code = ended(started([*command, str(run)]), 1800)
    if code != 0:
        raise RuntimeError(f"an audit that nobody killed ended with {code}")


def _compared(run: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(run).items() if "claims" not in name}


def _differing(one: dict[str, bytes], other: dict[str, bytes]) -> int:
    return sum(one.get(name) != other.get(name) for name in one.keys() | other.keys())
