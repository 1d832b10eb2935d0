"""Fake checks for the tests of the framework. A module, so that a child process can import them."""

from __future__ import annotations

import os
import signal

from evidence import CHECKS, Context, Measurement, Number, above, at_least, check, numbers
from evidence.rows import Row

ROWS = [
    Row("attacks", "first", "a claim", "at least 1 | or so", ("fake_good", "fake_bad")),
    Row("attacks", "second", "a crash", "no crash", ("fake_crash",)),
    Row("speed", "third", "a later claim", "several", ("fake_many",)),
]
CALLS: list[str] = []


@check("fake_good", rows="first", uses=("leakgauge.a",))
def fake_good(context: Context) -> Measurement:
    """Counts its calls."""
    CALLS.append("fake_good")
    before = len(list(context.scratch.iterdir()))
    (context.scratch / f"part{before}").touch()
    return Measurement(
        {"dB": Number(28.412, at_least(25), (27.9, 28.92))}, detail="20 records", table=[{"n": 1, "dB": 2.5}]
    )


@check("fake_bad", rows="first", cost="minutes")
def fake_bad() -> Measurement:
    CALLS.append("fake_bad")
    return Measurement({"low": Number(0.076, at_least(0.5)), "high": Number(0.9, at_least(0.5))})


@check("fake_crash", rows="second")
def fake_crash() -> Measurement:
    CALLS.append("fake_crash")
    raise RuntimeError(f"cannot read {os.getcwd()}/secret/file.txt")


@check("fake_many", rows="third", cost="long")
def fake_many() -> Measurement:
    CALLS.append("fake_many")
    return Measurement(numbers({"a": 1.5, "b": float("inf"), "c": "none"}, {"a": (1.0, 2.0)}, {"b": above(3)}))


@check("fake_killed", rows="third")
def fake_killed() -> Measurement:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


FAKES = {name: CHECKS[name] for name in CHECKS if name.startswith("fake_")}
