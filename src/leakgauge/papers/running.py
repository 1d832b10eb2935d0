"""Run a table as a study is run: cells on the audit's store, by any of its engines; what is finished stays finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from torch import Tensor

from leakgauge.audit.cells import CallCell
from leakgauge.audit.engines import Engine, InProcess
from leakgauge.audit.run import claim
from leakgauge.audit.store import Store, write
from leakgauge.errors import DomainError
from leakgauge.papers.contract import Scale, Table
from leakgauge.papers.judging import Outcome, judged
from leakgauge.papers.recording import stored
from leakgauge.papers.units import units_of
from leakgauge.storage.lock import locked
from leakgauge.storage.private import prepare
from leakgauge.study.study import Study

OUTPUT = Path("papers-output")


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
    size = table.sizes.get(scale)
    if size is None or table.measure is None:
        what = table.missing or (f"needs {table.waits}" if table.waits else f"has no scale {scale}")
        remedy = f"say --scale {' or '.join(table.sizes)}" if table.sizes else "see `leakgauge papers`"
        raise DomainError(what, where=table.name, remedy=remedy)
    if lost := [name for name in only if name not in size.work]:
        raise DomainError(f"no unit {lost[0]!r}", where=table.name, remedy=f"say one of {', '.join(size.work)}")
    cells = units_of(table, scale)
    paper, _, short = table.name.partition("/")
    store, faults = Store(folder or OUTPUT / paper), dict[str, str]()
    prepare(store.folder)
    with locked(store.folder):
        claim(store)
        store.sweep()
        left = [cell for name, cell in cells.items() if not store.done(cell.id) and (not only or name in only)]
        names = {cell.id: name for name, cell in cells.items()}
        # a call carries all that it needs: engines pass the study on, and no cell of this plan asks for it
        for cell, fault in (engine or InProcess()).run(cast(Study, None), left, store):
            if fault is not None:
                faults[names[cell.id]] = fault
            say(f"{names[cell.id]}: {fault or 'done'}")
        outcome = _gathered(table, scale, store, cells, faults)
        write(
            store.folder / f"{short}.{scale}.json", json.dumps(stored(outcome), indent=1, ensure_ascii=False).encode()
        )
    return outcome


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
        for name, values in result["samples"].items():
            samples.setdefault(name, []).extend(values)
        for name, points in result["curves"].items():
            curves.setdefault(name, []).extend((x, y) for x, y in points)
        notes |= result["notes"]
        if table.grid and "tensors" in result:
            pictures |= store.tensors(cell.id)
    spent = store.timings() if (store.folder / "log.jsonl").is_file() else {}
    seconds = sum(spent.get(cell.id, 0.0) for cell in done.values())
    units, size = {name: cell.id for name, cell in done.items()}, table.sizes[scale]
    rows = judged(table, size, samples, claims_only=scale == "smoke" and bool(size.reduced))
    return Outcome(table, scale, rows, samples, notes, curves, round(seconds, 1), faults, pictures, units)
