"""Run checks one by one, each in its own process, and store what each found before the next begins."""

from __future__ import annotations

import importlib
import multiprocessing
import shutil
import signal
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console

from evidence.page import render
from evidence.registry import CHECKS, Check, Context
from evidence.rows import Row
from evidence.store import Result, Store, machine, plain

MEASURED = ("value", "interval", "passed", "detail", "table", "error")


def run(
    pairs: Iterable[tuple[Row, Check]], store: Store, console: Console, *, fresh: bool = False, isolate: bool = True
) -> bool:
    """Run the checks whose stored results are missing or stale; true if every result, old or new, passes."""
    pairs, good = list(pairs), True
    for number, (row, check) in enumerate(pairs, 1):
        head = f"[{number}/{len(pairs)}] {check.name}"
        known = None if fresh else current(store, row, check.name)
        if known:
            say(console, f"{head}: stored, {_said(known)}")
        else:
            say(console, f"{head}: running ({check.cost}) …")
            known = measure(row, check, store, console, fresh=fresh, isolate=isolate)
            say(console, f"{head}: {_said(known)} ({known['seconds']:.1f} s)")
        good = good and bool(known["passed"])
    return good


def current(store: Store, row: Row, name: str) -> Result | None:
    """The stored result if it is of these sources and this bar, and did not crash; crashes are tried again."""
    known = store.read(name)
    if known is None or known.get("error") or known.get("bar") != row.bar:
        return None
    return known if known.get("fingerprint") == store.fingerprint() else None


def measure(row: Row, check: Check, store: Store, console: Console, *, fresh: bool, isolate: bool) -> Result:
    """Run one check and store its result; whatever goes wrong inside it is a failed result, not an exception."""
    fingerprint, (commit, dirty), scratch = store.fingerprint(), store.commit(), store.scratch(check.name)
    if fresh:
        shutil.rmtree(scratch, ignore_errors=True)
    start = time.perf_counter()
    found = _in_child(check, scratch) if isolate else attempt(check, scratch)
    seconds = time.perf_counter() - start
    if "trace" in found:
        say(console, found["trace"])
    if store.fingerprint() != fingerprint:
        # somebody edited the sources meanwhile: the number stands for neither state, so it is never reused
        fingerprint, dirty = "changed while running", True
    result: Result = {
        "name": check.name,
        "issue": row.issue,
        "row": row.row,
        "bar": row.bar,
        **store.scrub({key: found.get(key) for key in MEASURED}),
        "about": check.about,
        "command": command(check.name),
        "commit": commit,
        "dirty": dirty,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "seconds": round(seconds, 3),
        "cost": check.cost,
        "fingerprint": fingerprint,
    }
    store.write(check.name, result)
    return store.read(check.name) or result


def say(console: Console, text: str) -> None:
    """A line as it is: no wrapping, no colours, no square brackets taken for markup."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def command(name: str) -> str:
    """What to type to measure one check again."""
    return f"python -m evidence --only {name}"


def attempt(check: Check, scratch: Path) -> Result:
    """The measurement of a check, or its error."""
    scratch.mkdir(parents=True, exist_ok=True)
    context = Context(say=lambda text: print(f"    {check.name}: {text}", flush=True), scratch=scratch)
    try:
        found: Result = plain(asdict(check.measure(context)))
        return found
    except Exception as fault:  # a check may fail in any way; the others still run
        return {"passed": False, "error": f"{type(fault).__name__}: {fault}", "trace": traceback.format_exc()}


def _in_child(check: Check, scratch: Path) -> Result:
    """Measure in a new process: no check sees another's threads or caches, and a killed one is a result too."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_child, args=(check.function.__module__, check.name, scratch, theirs))
    child.start()
    theirs.close()  # so that the child's death ends the pipe
    try:
        found: Result = ours.recv()
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return {"passed": False, "error": f"the process of the check ended without a result ({how})"}
    except BaseException:  # an interrupt: leave no orphan that computes on
        child.terminate()
        child.join()
        raise
    finally:
        ours.close()
    child.join()
    return found


def _child(module: str, name: str, scratch: Path, connection: Connection) -> None:
    importlib.import_module(module)
    connection.send(attempt(CHECKS[name], scratch))
    connection.close()


def _said(result: Result) -> str:
    return f"{'pass' if result['passed'] else 'FAIL'}, {render(result)}"
