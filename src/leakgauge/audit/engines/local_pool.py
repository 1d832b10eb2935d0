"""Several worker processes on this machine, one thread each; each gets the study once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile

from leakgauge import guards, workers
from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.base import Finished, finish, named, orphaned
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work
from leakgauge.errors import LeakgaugeError
from leakgauge.study.study import Study

_REMEDY = "say workers=1, or put your classes and functions into a module that can be imported"


@dataclass(frozen=True)
class LocalPool:
    """A pool of ``workers`` processes.

    One that dies (out of memory, say) takes those beside it along: each cell that was running gets a second try, by
    itself, and only the one whose process dies again has failed.
    """

    workers: int = 2

    def __post_init__(self) -> None:
        guards.count(self.workers, "workers", "LocalPool")

    def run(self, study: Study, cells: Sequence[Cell], store: Store) -> Iterator[Finished]:
        values = _packed(study)
        waiting, died = list(cells), Counter[str]()
        while waiting:
            running: dict[Future[str | None], Cell] = {}
            with _loaded(self.workers, values, store) as pool:
                while self._submit(pool, waiting, running, store, died) and running:
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    broken = [future for future in ended if isinstance(future.exception(), BrokenProcessPool)]
                    for future in ended.difference(broken):
                        cell, fault = running.pop(future), future.exception()
                        yield cell, named(fault, store) if fault else future.result()
                    if broken:
                        break
            for cell in running.values():
                died[cell.id] += 1
                if died[cell.id] > 1:
                    yield cell, "its worker process died twice (out of memory?)"
                else:
                    waiting.insert(0, cell)
            if not running and not any(orphaned(cell, store) is None for cell in waiting):
                for cell in waiting:  # nothing can start any more: their parents failed
                    yield cell, orphaned(cell, store)
                return

    def _submit(
        self,
        pool: ProcessPoolExecutor,
        waiting: list[Cell],
        running: dict[Future[str | None], Cell],
        store: Store,
        died: Mapping[str, int],
    ) -> bool:
        """Keep every worker busy with cells whose parents are done; a cell that may have killed its worker runs
        alone. False if the pool is broken: a worker died while nobody waited for it."""
        ready = (cell for cell in waiting if orphaned(cell, store) is None)  # looked at only as far as is needed
        # suspects are put back at the front
        suspects = list(takewhile(lambda cell: died.get(cell.id), waiting)) if died else []
        if any(died.get(cell.id) for cell in running.values()) or (suspects and running):
            return True
        for cell in suspects[:1] or list(islice(ready, self.workers - len(running))):
            try:
                future = pool.submit(_work, _packed(cell))
            except BrokenProcessPool:
                return False
            waiting.remove(cell)
            running[future] = cell
        return True


@contextmanager
def _loaded(count: int, values: bytes, store: Store) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers have loaded the study."""
    with workers.pool(count, _begin, (values, store)) as pool:
        try:
            pool.submit(_ready).result()
        except BrokenProcessPool:
            raise LeakgaugeError(
                "a worker process dies while it loads the study", where="workers", remedy="say --workers 1 to see why"
            ) from None
        yield pool


def _packed(value: Study | Cell) -> bytes:
    """Values for our own worker processes; nothing is ever unpickled from a file."""
    try:
        return pickle.dumps(value)
    except Exception as fault:
        raise LeakgaugeError(
            f"cannot be sent to worker processes ({type(fault).__name__}: {fault})", where="study", remedy=_REMEDY
        ) from None


_worker: dict[str, Work | str] = {}


def _begin(values: bytes, store: Store) -> None:
    """Load the study once."""
    workers.begin_worker()
    try:
        _worker["work"] = Work(pickle.loads(values), store)  # noqa: S301 - bytes of our own parent process
    except Exception as fault:
        _worker["work"] = f"a worker process cannot load the study ({type(fault).__name__}: {fault}); {_REMEDY}"


def _ready() -> None:
    """The first thing a worker does: by then it has loaded the study."""


def _work(values: bytes) -> str | None:
    work = _worker["work"]
    if isinstance(work, str):
        return work
    cell: Cell = pickle.loads(values)  # noqa: S301 - bytes of our own parent process
    return finish(cell, work)
