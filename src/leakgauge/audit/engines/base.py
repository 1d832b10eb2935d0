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
from leakgauge.storage.redaction import discreet
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


def named(fault: BaseException, store: Store) -> str:
    """A fault in one line; in a redacted run without its message, which may quote a record."""
    sentence = f"{type(fault).__name__}: {fault}"
    return discreet(sentence) if store.redact else sentence


def finish(cell: Cell, work: Work) -> str | None:
    """Run and commit one cell; a fault is returned, not raised."""
    store, begun = work.store, time.process_time()  # of this process: what else runs on the machine does not count
    try:
        store.commit(cell.id, *work.run(cell))
    except Exception as fault:
        sentence = named(fault, store)
        with suppress(OSError):  # a full disk, say: the fault is reported all the same
            lines = [*traceback.format_tb(fault.__traceback__), sentence] if store.redact else traceback.format_exc()
            write(store.cell(cell.id).with_suffix(".fault"), "".join(lines).encode(errors="replace"))
            store.log(event="fault", cell=cell.id, fault=sentence)
        return sentence
    store.cell(cell.id).with_suffix(".fault").unlink(missing_ok=True)
    store.log(event="done", cell=cell.id, seconds=round(time.process_time() - begun, 3))
    return None
