"""One cell after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.base import Finished, finish, orphaned
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work
from leakgauge.study.study import Study
from leakgauge.threads import one_thread


@dataclass(frozen=True)
class InProcess:
    """One cell after the other, with one thread of torch; its number of threads is restored."""

    def run(self, study: Study, cells: Sequence[Cell], store: Store) -> Iterator[Finished]:
        work = Work(study, store)
        for cell in cells:  # parents come first
            with one_thread():
                fault = orphaned(cell, store) or finish(cell, work)
            yield cell, fault
