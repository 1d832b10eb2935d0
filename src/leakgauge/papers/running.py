"""Run a table as a study is run: cells on the audit's store, by any of its engines; what is finished stays finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from torch import Tensor

from leakgauge.audit.cells import CallCell
from leakgauge.audit.engines import Engine, InProcess
from leakgauge.audit.run import claim
from leakgauge.audit.store import Store, StoreError, write
from leakgauge.errors import DomainError, LeakgaugeError, nearest
from leakgauge.papers.contract import Scale, Table
from leakgauge.papers.judging import Outcome, judged
from leakgauge.papers.recording import stored
from leakgauge.papers.units import read_unit, units_of
from leakgauge.storage.lock import locked
from leakgauge.storage.private import prepare
from leakgauge.study.study import Study

OUTPUT = Path("papers-output")
PLAIN_FAULTS = ("RuntimeError", "TypeError", "ValueError")
"""Whose messages say enough without the name of the class; so do those of leakgauge's own errors."""


def folder_of(table: Table) -> Path:
    """Where a table is run if nothing else is said: tables of a paper that need the same unit of work share it."""
    return OUTPUT / table.name.partition("/")[0]


def run(
    table: Table,
    scale: Scale,
    folder: Path | None = None,
    *,
    only: Sequence[str] = (),
    engine: Engine | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Compute every unit of work that the folder does not hold yet, then judge all cells.

    ``only`` names units of work to run; those that are stored already count as well. The folder is by default that of
    the paper, ``papers-output/<paper>``: tables that need the same unit of work share it.
    """
    _check(table, scale, only)
    cells = units_of(table, scale)
    store, faults = Store(folder or folder_of(table)), dict[str, str]()
    prepare(store.folder)
    with locked(store.folder, remedy="wait until it has ended, or give another --out"):
        claim(store)
        store.sweep()
        _forget_unreadable(store, cells.values())
        left = [cell for name, cell in cells.items() if not store.done(cell.id) and (not only or name in only)]
        names = {cell.id: name for name, cell in cells.items()}
        # a call carries all that it needs: engines pass the study on, and no cell of this plan asks for it
        for cell, fault in (engine or InProcess()).run(cast(Study, None), left, store):
            if fault is not None:
                sentence = _without_class(fault)
                say(f"{names[cell.id]}: {'failed in the same way' if sentence in faults.values() else sentence}")
                faults[names[cell.id]] = sentence
            else:
                say(f"{names[cell.id]}: done")
        outcome = _gathered(table, scale, store, cells, faults)
        write(
            store.folder / f"{table.name.replace('/', '-')}.{scale}.json",
            json.dumps(stored(outcome), indent=1, ensure_ascii=False).encode(),
        )
    return outcome


def _check(table: Table, scale: Scale, only: Sequence[str]) -> None:
    size = table.sizes.get(scale)
    if size is None or table.measure is None:
        what = table.missing or f"has no scale {scale}"
        remedy = f"say --scale {' or '.join(table.sizes)}" if table.sizes else "see `leakgauge papers`"
        raise DomainError(what, where=table.name, remedy=remedy)
    for name in only:
        if name not in size.work:
            raise DomainError(f"no unit {name!r}", where=table.name, remedy=nearest(name, size.work, quoted=True))


def _forget_unreadable(store: Store, cells: Iterable[CallCell]) -> None:
    """Remove stored units that lack samples, notes or curves, so that they are computed again."""
    for cell in cells:
        if store.done(cell.id) and read_unit(store.result(cell.id)) is None:
            store.cell(cell.id).unlink()


def _without_class(fault: str) -> str:
    """A fault without the name of its class, where the message is a sentence."""
    name, _, sentence = fault.partition(": ")
    known, classes = set(PLAIN_FAULTS), [LeakgaugeError]
    while classes:
        known.add((one := classes.pop()).__name__)
        classes += one.__subclasses__()
    return sentence if sentence and name in known else fault


def _gathered(
    table: Table, scale: Scale, store: Store, cells: Mapping[str, CallCell], faults: Mapping[str, str]
) -> Outcome:
    samples: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    curves: dict[str, list[tuple[float, float]]] = {}
    pictures: dict[str, Tensor] = {}
    done = {name: cell for name, cell in cells.items() if store.done(cell.id)}
    for cell in done.values():
        result = store.result(cell.id)
        if (unit := read_unit(result)) is None:
            raise StoreError(
                "lacks what a unit of work leaves", where=str(store.cell(cell.id)), remedy="delete it and run again"
            )
        for name, values in unit.samples.items():
            samples.setdefault(name, []).extend(values)
        for name, points in unit.curves.items():
            curves.setdefault(name, []).extend(points)
        notes |= unit.notes
        if table.grid and "tensors" in result:
            pictures |= store.tensors(cell.id)
    spent = store.timings() if (store.folder / "log.jsonl").is_file() else {}
    seconds = sum(spent.get(cell.id, 0.0) for cell in done.values())
    units, size = {name: cell.id for name, cell in done.items()}, table.sizes[scale]
    rows = judged(table, size, samples, claims_only=scale == "smoke" and bool(size.reduced))
    return Outcome(table, scale, rows, samples, notes, curves, round(seconds, 1), faults, pictures, units)
