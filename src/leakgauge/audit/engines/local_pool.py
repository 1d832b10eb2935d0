"""Several worker processes on this machine, one thread each; each gets the study once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

import torch

from leakgauge import guards
from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.base import Finished, finish, orphaned
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
            pool = ProcessPoolExecutor(self.workers, get_context("spawn"), _begin, (values, store))
            running: dict[Future[str | None], Cell] = {}
            try:
                while waiting or running:
                    self._submit(pool, waiting, running, store, died)
                    if not running:
                        break
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        if isinstance(future.exception(), BrokenProcessPool):
                            continue
                        cell = running.pop(future)
                        fault = future.exception()
                        yield cell, f"{type(fault).__name__}: {fault}" if fault else future.result()
                    if any(isinstance(future.exception(), BrokenProcessPool) for future in ended):
                        break
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
            for cell in running.values():
                died[cell.id] += 1
                if died[cell.id] > 1:
                    yield cell, "its worker process died twice (out of memory?)"
                else:
                    waiting.insert(0, cell)
            if not running:
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
    ) -> None:
        """Keep every worker busy with cells whose parents are done; a cell that may have killed its worker runs
        alone."""
        ready = [cell for cell in waiting if orphaned(cell, store) is None]
        suspects = [cell for cell in ready if died.get(cell.id)]
        if any(died.get(cell.id) for cell in running.values()) or (suspects and running):
            return
        for cell in suspects[:1] or ready[: self.workers - len(running)]:
            waiting.remove(cell)
            running[pool.submit(_work, _packed(cell))] = cell


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
    torch.set_num_threads(1)
    try:
        _worker["work"] = Work(pickle.loads(values), store)  # noqa: S301 - bytes of our own parent process
    except Exception as fault:
        _worker["work"] = f"a worker process cannot load the study ({type(fault).__name__}: {fault}); {_REMEDY}"


def _work(values: bytes) -> str | None:
    work = _worker["work"]
    if isinstance(work, str):
        return work
    cell: Cell = pickle.loads(values)  # noqa: S301 - bytes of our own parent process
    return finish(cell, work)
