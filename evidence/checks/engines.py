"""Engines and hostile input: a real Ray cluster, a hundred kills over all engines, fuzzing, and how cost grows."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from evidence import Context, Measurement, Number, at_least, at_most, check, exactly
from evidence.ray_cluster import in_a_namespace
from evidence.soaking import WAYS, soak

KILLS = 100
INPUTS = 100_000


@check("ray_cluster", rows="ray", cost="minutes", uses=("leakgauge.cli",))
def ray_cluster(context: Context) -> Measurement:
    """A head and a second node in a network namespace with only loopback; a worker, a node and the driver killed."""
    if importlib.util.find_spec("ray") is None:
        return Measurement(
            {"a cluster": Number("ray is not installed", exactly(1))}, detail="pip install leakgauge[ray]"
        )
    with tempfile.TemporaryDirectory() as name:
        answers = in_a_namespace(Path(name))
    ways = ("undisturbed", "driver", "nodes")
    return Measurement(
        {
            "files that differ from the local engine": Number(
                sum(answers[f"{way} differs"] for way in ways), exactly(0)
            ),
            "runs that ended with a fault": Number(sum(answers[f"{way} code"] != 0 for way in ways), exactly(0)),
            "workers, nodes and drivers killed mid-run": Number(
                answers["workers killed"] + answers["nodes killed"] + (answers["driver killed at"] < answers["cells"]),
                exactly(3),
            ),
            "cells quarantined that kill their worker": Number(answers["quarantined"], at_least(1)),
            "only loopback": Number(int(answers["only loopback"]), exactly(1)),
            "processes left over": Number(answers["left over"], exactly(0)),
            "overhead per cell, seconds of wall time": Number(round(answers["overhead"], 3)),
            "cells": Number(answers["cells"]),
        },
        detail="two nodes of one processor each, RAY_AUTH_MODE=token; three whole runs on the cluster",
    )


@check("soak_engines", rows="soak-engines", cost="minutes", uses=("leakgauge.cli",))
def soak_engines(context: Context) -> Measurement:
    """A hundred SIGKILLs at random moments, in turn on one process, two workers, and two processes on one folder."""
    table: list[dict[str, Any]] = []
    for place, way in enumerate(WAYS):
        wanted = KILLS // len(WAYS) + (place < KILLS % len(WAYS))
        with tempfile.TemporaryDirectory() as name:
            soaked = soak(way, wanted, Path(name), context.say)
        table.append({"engine": way.name, **vars(soaked)})
    return Measurement(
        {
            "kills that hit a running process": Number(sum(row["kills"] for row in table), at_least(KILLS)),
            "runs that were killed, resumed and finished": Number(sum(row["finished"] for row in table)),
            "files that differ from the undisturbed run": Number(sum(row["different"] for row in table), exactly(0)),
        },
        detail="at 5 % to 70 % of the time of an undisturbed run, the whole process group; result, plan, records and "
        "every cell, byte by byte; kills on a Ray cluster are counted by ray_cluster",
        table=table,
    )


@check("fuzzing", rows="fuzzing", cost="long")
def fuzzing(context: Context) -> Measurement:
    """Valid files changed at random, a hundred thousand per reader; those that were tried are kept when interrupted."""
    from evidence.fuzzing import READERS, fuzz, reader, scratch

    table: list[dict[str, Any]] = []
    for name in READERS:
        memory = context.scratch / f"{name.replace(' ', '-')}.json"
        tried, failures = json.loads(memory.read_text()) if memory.exists() else (0, [])
        with scratch() as folder:
            while tried < INPUTS:
                failures += map(str, fuzz(reader(name), range(tried, tried + 1000), folder))
                tried += 1000
                memory.write_text(json.dumps([tried, failures[:20]]))
                if tried % 10_000 == 0:
                    context.say(f"{name}: {tried} tried, {len(failures)} failures")
        table.append({"reader": name, "inputs": tried, "failures": len(failures), "first": (failures or [""])[0][:200]})
    return Measurement(
        {
            "readers": Number(len(table), at_least(10)),
            "least inputs per reader": Number(min(row["inputs"] for row in table), at_least(INPUTS)),
            "failures": Number(sum(row["failures"] for row in table), exactly(0)),
        },
        detail="a failure is an exception other than our own, more than 5 s of processor time, more than 1 GB, "
        "a program started, a module imported, a connection opened, or a file written outside the folder",
        table=table,
    )


@check("scale", rows="scale", cost="minutes", uses=("benchmarks/scale.py",))
def scale(context: Context) -> Measurement:
    """Processor time over records, cells and workers, every point in a process of its own; a page of 10,000 cells."""
    from benchmarks.scale import CURVES, STORED, exponent, measured, stored_curve, trivial_run
    from evidence.browser import CHROMIUM, opening

    curves = {}
    for name, curve in CURVES.items():
        curves[name] = [measured(name, x) for x in curve.points]
        stored_curve(name, curves[name], STORED)
        context.say(f"{name}: exponent {exponent(curves[name]):.2f}")
    last, (one, two) = curves["cells"][-1], curves["workers"]
    opened: float | str = "chromium is not installed"
    if CHROMIUM.exists() and importlib.util.find_spec("playwright"):
        with tempfile.TemporaryDirectory() as folder:
            trivial_run(CURVES["cells"].points[-1], Path(folder) / "run")
            opened = round(opening(Path(folder) / "run" / "report.html"), 2)
    return Measurement(
        {
            "exponent of records": Number(round(exponent(curves["records"]), 3), at_most(1.05)),
            "exponent of cells": Number(round(exponent(curves["cells"]), 3), at_most(1.05)),
            "exponent of parameters": Number(round(exponent(curves["parameters"]), 3), at_most(1.05)),
            "exponent of problems": Number(round(exponent(curves["problems"]), 3), at_most(1.05)),
            "processor time of two workers, of one": Number(round(two.seconds / one.seconds, 3), at_most(1.5)),
            "overhead per cell at 10,000, ms": Number(round(1000 * last.seconds / last.x, 2), at_most(5.0)),
            "seconds until a report of 10,000 cells is open": Number(opened, at_most(3.0)),
            "peak memory at 10,000 cells, MB": Number(round(last.megabytes), at_most(2048)),
        },
        detail="slopes of the logarithms over the upper half of each curve; plan, store, judge and three reports of "
        "cells that compute nothing; a second worker costs its start (imports, about 3 s) and no more",
        table=[{"curve": name, **vars(point)} for name, points in curves.items() for point in points],
    )
