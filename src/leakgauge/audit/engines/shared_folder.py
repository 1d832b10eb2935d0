"""Several audits on one run folder, on one machine or on many: each claims cells by files with a lease."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from leakgauge import guards
from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.base import Finished, finish, orphaned
from leakgauge.audit.engines.claims import Claims
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work
from leakgauge.study.study import Study
from leakgauge.threads import one_thread


@dataclass(frozen=True)
class SharedFolder:
    """One of several processes that run the cells of one folder together.

    Every process runs the cells that nobody else holds, waits for the others, and writes the same result. A process
    that dies, or stops for longer than ``lease`` seconds, loses its cell to another one; one that was only stopped
    commits the same bytes again. A cell that three processes did not survive has failed.
    """

    lease: float = 60.0

    shares: ClassVar[bool] = True
    """Says to :func:`leakgauge.audit.run.execute` that others may be at work in the folder."""

    def __post_init__(self) -> None:
        guards.positive(self.lease, "lease", "SharedFolder")

    def run(self, study: Study, cells: Sequence[Cell], store: Store) -> Iterator[Finished]:
        work, claims = Work(study, store), Claims(store.folder, self.lease)
        waiting, failed = list(cells), set[str]()
        while waiting:
            later: list[Cell] = []
            for cell in waiting:  # parents come first
                ended, fault = self._advance(cell, work, claims, failed)
                if not ended:
                    later.append(cell)
                    continue
                if fault is not None:
                    failed.add(cell.id)
                yield cell, fault
            if len(later) == len(waiting):
                time.sleep(claims.pause)
            waiting = later

    def _advance(self, cell: Cell, work: Work, claims: Claims, failed: set[str]) -> tuple[bool, str | None]:
        """Run a cell if it is free; whether it has ended, here or elsewhere, and its fault."""
        store = work.store
        if store.done(cell.id):
            return True, None
        if (fault := claims.fault(cell.id)) is not None:
            return True, fault
        if failed.intersection(cell.parents):
            return True, orphaned(cell, store)
        if orphaned(cell, store) or (claim := claims.take(cell.id)) is None:
            return False, None
        with claims.held(claim), one_thread():
            if store.done(cell.id):  # between the look and the claim
                return True, None
            fault = finish(cell, work)
            if fault is not None:
                claims.fail(cell.id, fault)
        return True, fault
