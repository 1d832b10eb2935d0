"""Run checks one by one, each in its own process, and store what each measured before the next begins."""

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

from evidence import execution
from evidence.page import WORDS, render
from evidence.registry import CHECKS, Check, Context
from evidence.rows import Row
from evidence.sources import ROOTS, Sources
from evidence.state import State, executed, fingerprint, now
from evidence.store import Result, Store, machine, plain

MEASURED = ("numbers", "detail", "table", "error")


def run(
    pairs: Iterable[tuple[Row, Check]], store: Store, console: Console, *, fresh: bool = False, isolate: bool = True
) -> bool:
    """Run the checks whose stored results are missing or old; true if no result, stored or new, misses a bar."""
    pairs, good, sources = list(pairs), True, Sources(store.root)
    for number, (row, check) in enumerate(pairs, 1):
        sources = sources.fresh()
        head = f"[{number}/{len(pairs)}] {check.name}"
        known = now(row, check, store.read(check.name), sources)
        if known.current and not fresh:
            say(console, f"{head}: stored, {_words(known)}")
        else:
            say(console, f"{head}: running ({check.cost}) …")
            known, spent = measure(row, check, store, console, sources=sources, fresh=fresh, isolate=isolate)
            say(console, f"{head}: {_words(known)} ({spent:.1f} s)")
        good = good and known.word in ("pass", "no bar")
    return good


def measure(
    row: Row, check: Check, store: Store, console: Console, *, sources: Sources, fresh: bool, isolate: bool
) -> tuple[State, float]:
    """Run one check and store its result; whatever goes wrong inside it is a failed result, not an exception."""
    code = fingerprint(check, sources)
    scratch, (commit, dirty) = store.scratch(check.name, code.digest), store.commit(code.files)
    if fresh:
        shutil.rmtree(scratch, ignore_errors=True)
    start = time.perf_counter()
    resumed = scratch.exists() and any(scratch.iterdir())
    outcome = _in_child(check, scratch) if isolate else attempt(check, scratch)
    spent = time.perf_counter() - start
    if "trace" in outcome:
        say(console, outcome["trace"])
    sources = sources.fresh()
    digest, seen = fingerprint(check, sources).digest, not resumed and not check.other_modules
    if digest != code.digest:
        # somebody edited the sources meanwhile: the number stands for neither state, so it is never reused
        digest, dirty, seen = "changed while running", True, False
    result: Result = {
        "name": check.name,
        "row": row.row,
        "bar": row.bar,
        **store.scrub({key: outcome.get(key) for key in MEASURED}),
        "about": check.about,
        "command": command(check.name),
        "commit": commit,
        "dirty": dirty,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "seconds": round(spent, 3),
        "cost": check.cost,
        "fingerprint": digest,
    }
    if seen and outcome.get("ran"):
        result["ran"] = {module: " ".join(names) for module, names in outcome["ran"].items()}
        result["executed"] = executed(check, sources, result)
    store.write(check.name, result)
    return now(row, check, store.read(check.name) or result, sources), spent


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
        outcome: Result = plain(asdict(check.measure(context)))
        return outcome
    except Exception as fault:  # a check may fail in any way; the others still run
        return {"error": f"{type(fault).__name__}: {fault}", "trace": traceback.format_exc()}


def _in_child(check: Check, scratch: Path) -> Result:
    """Measure in a new process: no check sees another's threads or caches, and a killed one is a result too."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_child, args=(check.function.__module__, check.name, scratch, theirs))
    child.start()
    theirs.close()  # so that the child's death ends the pipe
    try:
        outcome: Result = ours.recv()
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return {"error": f"the process of the check ended without a result ({how})"}
    except BaseException:  # an interrupt: leave no orphan that computes on
        child.terminate()
        child.join()
        raise
    finally:
        ours.close()
    child.join()
    return outcome


def _child(module: str, name: str, scratch: Path, connection: Connection) -> None:
    execution.watch(list(ROOTS))
    importlib.import_module(module)
    connection.send({**attempt(CHECKS[name], scratch), "ran": execution.ran()})
    connection.close()


def _words(known: State) -> str:
    return f"{WORDS[known.word]}: {render(known, judged=True)}"
