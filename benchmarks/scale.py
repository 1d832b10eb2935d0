"""How the cost of an audit grows: ``python -m benchmarks.scale [CURVE …] [--most N] [--json PATH]``.

Every point is measured in a process of its own, by processor time and by the peak of its memory. An exponent is the
slope of the logarithms over the upper half of a curve, where what is paid once no longer matters. Curves are stored in
``benchmarks/scale.json``, from which ``docs/explanation/cost.md`` is computed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.machine import cpu
from benchmarks.memory import _peak

ROOT = Path(__file__).resolve().parent.parent
STORED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Point:
    """One measurement: seconds of one processor, and the peak of memory in megabytes."""

    x: int
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Curve:
    """What is varied, where, and what is measured at each point, in seconds."""

    about: str
    points: tuple[int, ...]
    measure: Callable[[int], float]


def exponent(points: Sequence[Point]) -> float:
    """The slope of log seconds over log x, by least squares over the upper half of the points, at least two."""
    upper = sorted(points, key=lambda point: point.x)[len(points) // 2 - (len(points) < 4) :]
    xs, ys = np.log([point.x for point in upper]), np.log([point.seconds for point in upper])
    return float(np.polyfit(xs, ys, 1)[0])


def _study(records: int, defenses: int = 1, steps: int = 0):  # type: ignore[no-untyped-def]
    """Small pictures, a logistic model, and an adversary that costs next to nothing, or ``steps`` of a search."""
    import leakgauge as lg

    generator = torch.Generator().manual_seed(0)
    many = 2 * records + 700
    inputs = torch.rand(many, 1, 8, 8, generator=generator)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    attack = f"inverting_gradients(steps={steps})" if steps else "analytic()"
    return lg.Study(
        model,
        (inputs, torch.arange(many) % 10),
        updates=records,
        defenses={f"d{i}": f"gaussian(std={0.001 * (i + 1):g})" for i in range(defenses)},
        adversaries={"a": attack},
        leave_out=["adaptive"],
    )


def of_records(count: int) -> float:
    """A whole audit of so many records by a short search."""
    from leakgauge.audit import audit

    study = _study(count, steps=20)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        audit(study, folder)
        return time.process_time() - begun


def of_parameters(count: int) -> float:
    """Ten steps of a search on 4 records, of a network of so many parameters."""
    width = max(1, round((-794 + math.sqrt(794**2 + 4 * count)) / 2))  # 784 w + w² + 10 w
    return _search(f"mlp(width={width}, depth=2)", 4)


def of_problems(count: int) -> float:
    """Ten steps of a search on so many records at once."""
    return _search("bayes_cnn", count)


def _search(model: str, problems: int) -> float:
    import leakgauge as lg
    from leakgauge.audit.attacking import observed
    from leakgauge.expr import parse
    from leakgauge.types import Threat

    data = lg.data.load("fashion_mnist_sample")
    task = lg.Task(lg.models.build(model, data.domain), data.domain)
    observations = observed(task, data.sample(problems), Threat(), seed=0, rounds=1)
    attack = parse("inverting_gradients(steps=10)", "attack")
    begun = time.process_time()
    attack(task, observations, seed=0)
    return time.process_time() - begun


def of_workers(count: int) -> float:
    """Processor time of a whole audit, of the driver and of so many workers together: wall time is everybody's."""
    import multiprocessing
    import resource

    from leakgauge.audit import LocalPool, audit

    study = _study(200, steps=300)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        audit(study, folder, engine=LocalPool(count))
        while multiprocessing.active_children():  # ended; their time counts once they are reaped
            time.sleep(0.05)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() - begun + children.ru_utime + children.ru_stime


def of_cells(count: int) -> float:
    """Plan, commit, read and report so many cells without computing any: what an audit costs besides its attacks."""
    with tempfile.TemporaryDirectory() as name:
        return trivial_run(count, Path(name) / "run")


def trivial_run(count: int, folder: Path) -> float:
    """A run folder of so many cells that hold the numbers of a few; the processor time that it took."""
    from leakgauge.audit.cells import AttackCell
    from leakgauge.audit.judge.result import result
    from leakgauge.audit.plan import plan
    from leakgauge.audit.run import Outcome, _begin
    from leakgauge.audit.store import Store
    from leakgauge.audit.work import Work
    from leakgauge.report import report
    from leakgauge.storage.private import prepare

    # six cells for every ten records: three arms of the defense and of the undefended control
    study, store = _study(max(10, round(count / 6) * 10)), Store(folder)
    _ = study.peers, study.content  # paid once, and for records, not for cells
    prepare(folder)
    samples = {}
    for cell in plan(study).cells:
        if isinstance(cell, AttackCell) and cell.arm not in samples:
            samples[cell.arm] = Work(study, store).run(cell)
    begun = time.process_time()
    planned = plan(study)
    _begin(study, store, planned)
    for cell in planned.cells:
        assert isinstance(cell, AttackCell)
        summary, tensors = samples[cell.arm]
        store.commit(cell.id, {**summary, "cell": cell.id, "params": cell.params}, tensors)
        store.log(event="done", cell=cell.id, seconds=0.0)
    store.timings()
    result(study, Outcome(planned, {}), store, None).save(folder)
    report(folder, formats=("md", "junit", "html"))
    return time.process_time() - begun


CURVES: dict[str, Curve] = {
    "records": Curve("records of an audit", (10, 30, 100, 300, 1000), of_records),
    "parameters": Curve("parameters of a network", (10_000, 100_000, 1_000_000, 10_000_000), of_parameters),
    "problems": Curve("problems at once", (1, 4, 16, 64), of_problems),
    "cells": Curve("cells of a plan", (12, 120, 1_200, 10_002), of_cells),
    "workers": Curve("workers of an audit", (1, 2), of_workers),
}


def measured(name: str, x: int) -> Point:
    """One point, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--point", name, str(x)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} at {x}: {done.stderr[-2000:]}")
    return Point(**json.loads(done.stdout.splitlines()[-1]))


def stored_curve(name: str, points: Sequence[Point], path: Path) -> None:
    """Put a curve beside those that are stored."""
    curves = json.loads(path.read_text()) if path.exists() else {}
    curves[name] = {
        "about": CURVES[name].about,
        "cpu": cpu(),
        "points": [asdict(point) for point in points],
        "exponent": round(exponent(points), 3),
    }
    path.write_text(json.dumps(curves, indent=1, sort_keys=True) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="How the cost of an audit grows.")
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"of {', '.join(CURVES)}; default: all")
    parser.add_argument("--most", type=int, default=sys.maxsize, metavar="N", help="leave larger points out")
    parser.add_argument("--json", type=Path, default=STORED, metavar="PATH", help="where curves are stored")
    parser.add_argument("--point", nargs=2, metavar=("CURVE", "X"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        torch.set_num_threads(1)
        name, x = options.point[0], int(options.point[1])
        print(json.dumps(asdict(Point(x, CURVES[name].measure(x), _peak()))))
        return 0
    for name in options.curves or CURVES:
        points = []
        for x in CURVES[name].points:
            if x <= options.most:
                points.append(point := measured(name, x))
                print(f"{name:12} {point.x:>10,} {point.seconds:>10.3f} s {point.megabytes:>8.0f} MB", flush=True)
        print(f"{name:12} exponent {exponent(points):.2f}", flush=True)
        stored_curve(name, points, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
