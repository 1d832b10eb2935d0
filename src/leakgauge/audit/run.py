"""Running a plan: worker processes, one thread each; whatever is finished stays finished.

The same command resumes a run that was killed. A resume in another environment is refused, because its numbers would
not be the undisturbed run's; a failing cell is reported and does not stop the others.
"""

from __future__ import annotations

import platform
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

import leakgauge
from leakgauge.audit import cells
from leakgauge.audit.plan import Cell, Plan, plan
from leakgauge.audit.prepare import Prepared, prepare
from leakgauge.audit.spec import Spec
from leakgauge.audit.store import Store, StoreError, canonical, write


class Report(Protocol):
    """Called when a cell ends: how many of how many, which, and the fault if it failed."""

    def __call__(self, done: int, total: int, cell: Cell, fault: str | None) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What a run left behind: the plan, and the faults of cells that failed."""

    plan: Plan
    faults: dict[str, str]


def environment() -> dict[str, str]:
    """What the numbers may depend on besides the plan."""
    return {
        "leakgauge": leakgauge.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
    }


def execute(
    spec: Spec, home: Path, folder: Path, *, workers: int = 1, report: Report | None = None, redact: bool = False
) -> Outcome:
    """Run every cell that is not done yet; ``redact`` keeps neither originals nor reconstructions."""
    torch.set_num_threads(1)
    store = Store(folder, redact)
    _claim(store)
    store.sweep()
    prepared = prepare(spec, home)
    planned = plan(spec, prepared)
    write(
        folder / "plan.json",
        canonical([{"id": c.id, "kind": c.kind, "params": c.params} for c in planned.cells]).encode(),
    )
    write(folder / "manifest.json", canonical(prepared.manifest).encode())
    store.keep(prepared.records.inputs, prepared.records.labels)
    left = [c for c in planned.cells if not store.done(c.id)]
    done, faults = len(planned.cells) - len(left), {}
    results = _alone(left, prepared, store) if workers == 1 else _together(left, spec, home, store, workers)
    for cell, fault in results:
        done += 1
        if fault is not None:
            faults[cell.id] = fault
        if report is not None:
            report(done, len(planned.cells), cell, fault)
    return Outcome(planned, faults)


def _claim(store: Store) -> None:
    """The run folder belongs to one environment."""
    path = store.folder / "environment.json"
    mine = canonical(environment())
    if path.is_file() and path.read_text() != mine:
        raise StoreError(
            "was begun in another environment (versions or CPU features differ)",
            where=str(store.folder),
            remedy="finish it there, or give another --out",
        )
    write(path, mine.encode())


def _alone(left: list[Cell], prepared: Prepared, store: Store) -> Iterator[tuple[Cell, str | None]]:
    for cell in left:
        yield cell, _finish(cell, prepared, store)


def _finish(cell: Cell, prepared: Prepared, store: Store) -> str | None:
    """Run and commit one cell; a fault is returned, not raised."""
    try:
        store.commit(cell.id, *cells.run(cell, prepared))
    except Exception as fault:
        write(store.cell(cell.id).with_suffix(".fault"), traceback.format_exc().encode())
        return f"{type(fault).__name__}: {fault}"
    store.cell(cell.id).with_suffix(".fault").unlink(missing_ok=True)
    return None


_worker: dict[str, Any] = {}


def _begin(spec: Spec, home: Path, store: Store) -> None:
    torch.set_num_threads(1)
    _worker.update(prepared=prepare(spec, home), store=store)


def _work(cell: Cell) -> str | None:
    return _finish(cell, _worker["prepared"], _worker["store"])


def _together(
    left: list[Cell], spec: Spec, home: Path, store: Store, workers: int
) -> Iterator[tuple[Cell, str | None]]:
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, _begin, (spec, home, store)) as pool:
        running: dict[Future[str | None], Cell] = {pool.submit(_work, cell): cell for cell in left}
        try:
            while running:
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    fault = future.exception()
                    yield running.pop(future), f"{type(fault).__name__}: {fault}" if fault else future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
