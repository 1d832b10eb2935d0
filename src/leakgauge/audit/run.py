"""Running a plan: worker processes, one thread each; whatever is finished stays finished.

The same command resumes a run that was killed. A resume in another environment is refused, because its numbers would
not be the undisturbed run's; a failing cell is reported and does not stop the others.
"""

from __future__ import annotations

import json
import platform
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

import leakgauge
from leakgauge import parse
from leakgauge.audit import cells
from leakgauge.audit.plan import Cell, Plan, plan
from leakgauge.audit.prepare import Prepared, prepare
from leakgauge.audit.store import Store, StoreError, canonical, write
from leakgauge.defenses import protection
from leakgauge.errors import LeakgaugeError
from leakgauge.storage import toml
from leakgauge.study.clients import encodes
from leakgauge.study.spec import Problem, Spec, SpecError


@dataclass(frozen=True)
class Event:
    """A cell has ended: how many of how many, which, its best score, and the fault if it failed."""

    done: int
    total: int
    cell: Cell
    best: float | None = None
    fault: str | None = None


class Report(Protocol):
    """Called when a cell ends."""

    def __call__(self, event: Event) -> None: ...


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
    spec: Spec,
    home: Path,
    folder: Path,
    *,
    workers: int = 1,
    report: Report | None = None,
    redact: bool = False,
    ablate: bool = False,
    attack: bool = True,
) -> Outcome:
    """Run every cell that is not done yet, or only plan them (``attack=False``).

    ``redact`` keeps neither originals nor reconstructions.
    """
    torch.set_num_threads(1)
    store = Store(folder, redact)
    _claim(store)
    store.sweep()
    prepared = prepare(spec, home)
    _refuse(spec, prepared)
    planned = plan(spec, prepared, ablate=ablate)
    listed = [{"id": c.id, "kind": c.kind, "parents": c.parents, "params": c.params} for c in planned.cells]
    write(folder / "plan.json", canonical(listed).encode())
    hashes = prepared.manifest(secrets.token_hex(16) if redact else "")
    write(folder / "manifest.json", canonical(hashes).encode())
    write(folder / "spec.toml", toml.dump(spec.model_dump(mode="json")).encode())
    store.keep(prepared.records.inputs, prepared.records.labels)
    left = [c for c in planned.cells if not store.done(c.id)] if attack else []
    store.log(event="start", left=len(left), cells=len(planned.cells), workers=workers)
    done, faults = len(planned.cells) - len(left), {}
    ended = _alone(left, prepared, store) if workers == 1 else _together(left, spec, home, store, workers)
    for cell, fault in ended:
        done += 1
        if fault is not None:
            faults[cell.id] = fault
        if report is not None:
            best = None if fault else best_score(store.result(cell.id))
            report(Event(done, len(planned.cells), cell, best, fault))
    store.log(event="end", faults=len(faults))
    return Outcome(planned, faults)


def _refuse(spec: Spec, prepared: Prepared) -> None:
    """Everything that this task cannot take, all at once: of the user's own code only the run can tell."""
    found: list[Problem] = []

    def tried(key: str, work: Callable[..., object], *given: object) -> None:
        try:
            work(*given)
        except LeakgaugeError as fault:
            what = f"{fault.where}: {fault.what}" if fault.where else fault.what
            found.append(Problem("spec", key, what, fault.remedy or "see `leakgauge list`"))

    for name, text in spec.defenses.items():
        tried(f"defenses.{name}", prepared.task.protect, text)
        for part in protection(text).input:
            tried(f"defenses.{name}", encodes, part, prepared.task.domain, spec)
    for name in spec.adversaries:
        for attack in (parse(text, "attack") for text in spec.settings(name)):
            if hasattr(attack, "fits"):
                tried(f"adversaries.{name}", attack.fits, prepared.task.params)
    if found:
        raise SpecError(found)


def best_score(found: dict[str, Any]) -> float | None:
    """The best score of an attack cell."""
    scores = found.get("scores", {})
    return max(scores.get("ssim") or scores.get("psnr") or [], default=None)


def _claim(store: Store) -> None:
    """The run folder belongs to one environment."""
    path = store.folder / "environment.json"
    mine = canonical(environment())
    if path.is_file() and path.read_text() != mine:
        raise StoreError(
            f"was begun in another environment ({_differences(path)})",
            where=str(store.folder),
            remedy="finish it there, or give another --out",
        )
    write(path, mine.encode())


def _differences(path: Path) -> str:
    """What the environment of a run folder has otherwise, in words."""
    try:
        theirs = dict(json.loads(path.read_text()))
    except (ValueError, TypeError):
        return "versions or CPU features differ"
    found = [
        f"{name} {theirs.get(name)}, here {here}" for name, here in environment().items() if theirs.get(name) != here
    ]
    return "; ".join(found) or "versions or CPU features differ"


def _alone(left: list[Cell], prepared: Prepared, store: Store) -> Iterator[tuple[Cell, str | None]]:
    for cell in left:  # parents come first
        yield cell, _orphan(cell, store) or _finish(cell, prepared, store)


def _orphan(cell: Cell, store: Store) -> str | None:
    lost = [parent for parent in cell.parents if not store.done(parent)]
    return f"the cell it builds on failed ({lost[0]})" if lost else None


def _finish(cell: Cell, prepared: Prepared, store: Store) -> str | None:
    """Run and commit one cell; a fault is returned, not raised."""
    begun = time.process_time()  # of this worker: what else runs on the machine does not count
    try:
        store.commit(cell.id, *cells.run(cell, prepared, store))
    except Exception as fault:
        write(store.cell(cell.id).with_suffix(".fault"), traceback.format_exc().encode())
        store.log(event="fault", cell=cell.id, fault=f"{type(fault).__name__}: {fault}")
        return f"{type(fault).__name__}: {fault}"
    store.cell(cell.id).with_suffix(".fault").unlink(missing_ok=True)
    store.log(event="done", cell=cell.id, seconds=round(time.process_time() - begun, 3))
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
    """Several processes. One that dies (out of memory, say) takes those beside it along: each cell that was running
    gets a second try, by itself, and only the one whose process dies again has failed."""
    waiting, died = list(left), Counter[str]()
    while waiting:
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (spec, home, store))
        running: dict[Future[str | None], Cell] = {}
        try:
            while waiting or running:
                _submit(pool, waiting, running, store, workers, died)
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
                yield cell, _orphan(cell, store)
            return


def _submit(
    pool: ProcessPoolExecutor,
    waiting: list[Cell],
    running: dict[Future[str | None], Cell],
    store: Store,
    workers: int,
    died: Mapping[str, int],
) -> None:
    """Keep every worker busy with cells whose parents are done; a cell that may have killed its worker runs alone."""
    ready = [cell for cell in waiting if _orphan(cell, store) is None]
    suspects = [cell for cell in ready if died.get(cell.id)]
    if any(died.get(cell.id) for cell in running.values()) or (suspects and running):
        return
    for cell in suspects[:1] or ready[: workers - len(running)]:
        waiting.remove(cell)
        running[pool.submit(_work, cell)] = cell
