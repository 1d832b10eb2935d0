"""Running a plan: whatever is finished stays finished.

The same command resumes a run that was killed. A resume in another environment is refused, because its numbers would
not be the undisturbed run's; a failing cell is reported and does not stop the others.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from leakgauge.audit.cells import Cell
from leakgauge.audit.engines import Engine, InProcess
from leakgauge.audit.engines.claims import forget
from leakgauge.audit.environment import differences, environment
from leakgauge.audit.plan import Plan, plan
from leakgauge.audit.store import RECORDS, Store, StoreError, canonical, write
from leakgauge.storage import json_files, toml
from leakgauge.storage.keys import redaction_key
from leakgauge.storage.lock import SharedLock, locked
from leakgauge.storage.private import prepare, swept
from leakgauge.study.study import Study

Kind = Literal["audit", "search", "standings"]
MARKS: dict[Kind, str] = {"audit": "plan.json", "search": "tune.json", "standings": "standings.json"}
"""What only the folder of such a run has."""
_NAMED: dict[Kind, str] = {"audit": "an audit", "search": "a search", "standings": "standings"}


@dataclass(frozen=True)
class Event:
    """A cell has ended: how many of how many, which, its best score, and the fault if it failed."""

    done: int
    total: int
    cell: Cell
    best: float | None = None
    fault: str | None = None


class Report(Protocol):
    """Called when a cell ends."""

    def __call__(self, event: Event) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What a run left behind: the plan, and the faults of cells that failed."""

    plan: Plan
    faults: dict[str, str]
    resumed: int = 0
    """Cells that were in the folder before, where anybody may have put them."""


def execute(
    study: Study,
    folder: Path,
    *,
    engine: Engine | None = None,
    report: Report | None = None,
    redact: bool = False,
    ablate: bool = False,
    attack: bool = True,
) -> Outcome:
    """Run every cell that is not done yet, or only plan them (``attack=False``).

    ``redact`` keeps neither originals nor reconstructions. A folder in which another audit runs is refused, unless both
    have an engine that shares it.
    """
    prepare(folder)
    engine, store = engine or InProcess(), Store(folder, redact)
    planned = plan(study, ablate=ablate, secret=redaction_key() if redact else "")
    if not getattr(engine, "shares", False):
        with locked(folder):
            forget(folder)  # of a shared run that was killed: faults, and cells by names that no redaction has
            _begin(study, store, planned)
            return _run(study, store, planned, engine, report, attack=attack)
    lock = SharedLock(folder)
    with lock.joining() as alone:
        if alone:
            forget(folder)
            _begin(study, store, planned)
        else:
            _join(store, planned)
    try:
        return _run(study, store, planned, engine, report, attack=attack)
    finally:
        with lock.leaving() as alone:
            if alone:
                forget(folder)
                swept(folder / "cells")


def _begin(study: Study, store: Store, planned: Plan) -> None:
    """Prepare the run folder, in which nobody else is at work: remove what a kill left, write what the run is about."""
    folder = store.folder
    claim(store)
    store.sweep()
    if store.redact:
        store.forget({cell.id for cell in planned.cells})
    write(folder / "plan.json", _listed(planned))
    hashes = study.roles.manifest(secrets.token_hex(16) if store.redact else "")
    write(folder / "manifest.json", canonical(hashes).encode())
    write(folder / "spec.toml", toml.dump(study.spec.model_dump(mode="json")).encode())
    store.keep(study.records.inputs, study.records.labels)


def _join(store: Store, planned: Plan) -> None:
    """Check that those who share the run folder run the same audit."""
    claim(store)
    path = store.folder / "plan.json"
    listed = _listed(planned)
    same = path.is_file() and path.stat().st_size == len(listed) and path.read_bytes() == listed
    if not same or store.redact == (store.folder / RECORDS).exists():
        raise StoreError(
            "those who share it run another audit",
            where=str(store.folder),
            remedy="give the same spec, the same data, --ablate and --redact to all of them, or another --out",
        )


def _listed(planned: Plan) -> bytes:
    cells = [{"id": c.id, "kind": c.kind, "parents": c.parents, "params": c.params} for c in planned.cells]
    return canonical(cells).encode()


def _run(study: Study, store: Store, planned: Plan, engine: Engine, report: Report | None, *, attack: bool) -> Outcome:
    left = [c for c in planned.cells if not store.done(c.id)] if attack else []
    store.log(event="start", left=len(left), cells=len(planned.cells), engine=repr(engine))
    done, faults = (resumed := len(planned.cells) - len(left)), {}
    for cell, fault in engine.run(study, left, store):
        _still_there(store.folder)
        done += 1
        if fault is not None:
            faults[cell.id] = fault
        if report is not None:
            best = None if fault else best_score(store.result(cell.id))
            report(Event(done, len(planned.cells), cell, best, fault))
    store.log(event="end", faults=len(faults))
    return Outcome(planned, faults, resumed)


def _still_there(folder: Path) -> None:
    if not (folder / "plan.json").exists():
        raise StoreError(
            "vanished while the audit ran", where=str(folder), remedy="the same command begins anew, where it can stay"
        )


def best_score(result: dict[str, Any]) -> float | None:
    """The best score of an attack cell."""
    scores: list[float] = result.get("scores", {}).get(result.get("metric"), [])
    return max(scores, default=None)


def claim(store: Store, kind: Kind = "audit") -> None:
    """The run folder belongs to one kind of run, and to one environment."""
    for other, name in MARKS.items():
        if other != kind and (store.folder / name).exists():
            raise StoreError(f"holds {_NAMED[other]}", where=str(store.folder), remedy="give another --out")
    path = store.folder / "environment.json"
    mine = canonical(environment())
    if path.is_file() and (theirs := _text(path)) != mine:
        raise StoreError(
            f"was begun in another environment ({_differences(theirs)})",
            where=str(store.folder),
            remedy="finish it there, or give another --out",
        )
    write(path, mine.encode())


def _text(path: Path) -> str:
    """What a file says; nothing where it is too large to be read."""
    try:
        return json_files.content(path).decode(errors="replace")
    except ValueError:
        return ""


def _differences(text: str) -> str:
    """What the environment of a run folder has otherwise, in words."""
    try:
        theirs = dict(json_files.loads(text))
    except (ValueError, TypeError, RecursionError):
        return "versions or CPU features differ"
    return differences(theirs, environment())
