"""What an engine is, and what every engine does with one cell."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from leakgauge.audit.cells import Cell
from leakgauge.audit.store import Store, write
from leakgauge.audit.work import Outcome, Work
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


@dataclass(frozen=True)
class Computed:
    """What a cell left, not yet committed: JSON and tensors, or the fault and its trace; seconds of one processor."""

    outcome: Outcome | None
    seconds: float = 0.0
    fault: str = ""
    trace: str = ""


def compute(cell: Cell, work: Work) -> Computed:
    """Run one cell and commit nothing; a fault is returned, not raised."""
    begun = time.process_time()  # of this process: what else runs on the machine does not count
    try:
        return Computed(work.run(cell), time.process_time() - begun)
    except Exception as fault:
        return _failed(fault, work.store)


def commit(cell: Cell, computed: Computed, store: Store) -> str | None:
    """Commit what a cell left; the same twice changes nothing. A fault, also of the disk, is returned."""
    if computed.outcome is not None:
        try:
            store.commit(cell.id, *computed.outcome)
        except Exception as fault:
            computed = _failed(fault, store)
    if computed.outcome is None:
        with suppress(OSError):  # a full disk, say: the fault is reported all the same
            write(store.cell(cell.id).with_suffix(".fault"), computed.trace.encode(errors="replace"))
            store.log(event="fault", cell=cell.id, fault=computed.fault)
        return computed.fault
    store.cell(cell.id).with_suffix(".fault").unlink(missing_ok=True)
    store.log(event="done", cell=cell.id, seconds=round(computed.seconds, 3))
    return None


def _failed(fault: Exception, store: Store) -> Computed:
    sentence = named(fault, store)
    lines = traceback.format_exception(fault) if not store.redact else traceback.format_tb(fault.__traceback__)
    return Computed(None, fault=sentence, trace="".join([*lines, sentence] if store.redact else lines))


def finish(cell: Cell, work: Work) -> str | None:
    """Run and commit one cell; a fault is returned, not raised."""
    return commit(cell, compute(cell, work), work.store)
