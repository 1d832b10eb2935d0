"""What an engine is, and what every engine does with one cell."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from leakgauge.audit.cells import Cell
from leakgauge.audit.store import Store, write
from leakgauge.audit.work import Work
from leakgauge.study.study import Study

Finished = tuple[Cell, str | None]
"""A cell that has ended, and the fault if it failed."""


class Engine(Protocol):
    """Runs cells that carry values. Whatever the engine, finished cells are the same to the byte."""

    def run(self, study: Study, cells: Sequence[Cell], store: Store) -> Iterator[Finished]:
        """Run every cell, parents first; a failing one is reported and does not stop the others."""


def orphaned(cell: Cell, store: Store) -> str | None:
    """Why a cell cannot start: a parent that is not done."""
    lost = [parent for parent in cell.parents if not store.done(parent)]
    return f"the cell it builds on failed ({lost[0]})" if lost else None


def finish(cell: Cell, work: Work) -> str | None:
    """Run and commit one cell; a fault is returned, not raised."""
    store, begun = work.store, time.process_time()  # of this process: what else runs on the machine does not count
    try:
        store.commit(cell.id, *work.run(cell))
    except Exception as fault:
        with suppress(OSError):  # a full disk, say: the fault is reported all the same
            write(store.cell(cell.id).with_suffix(".fault"), traceback.format_exc().encode())
            store.log(event="fault", cell=cell.id, fault=f"{type(fault).__name__}: {fault}")
        return f"{type(fault).__name__}: {fault}"
    store.cell(cell.id).with_suffix(".fault").unlink(missing_ok=True)
    store.log(event="done", cell=cell.id, seconds=round(time.process_time() - begun, 3))
    return None
