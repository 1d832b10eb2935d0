"""Engines and hostile input: a real Ray cluster, a hundred kills over all engines, fuzzing, and how cost grows."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from evidence import Context, Measurement, Number, at_least, at_most, check, exactly
from evidence.ray_cluster import contents, in_a_namespace

SOAKED = """
[task]
model = "mlp(width=8, depth=1)"
records = 20
[checkpoints]
train_steps = [0, 5]
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
generic = "inverting_gradients(steps=30)"
tuned = ["adaptive(steps=20)", "adaptive(steps=30)"]
"""
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


@check("soak_engines", rows="soak-engines", cost="long", uses=("leakgauge.cli",))
def soak_engines(context: Context) -> Measurement:
    """A hundred SIGKILLs at random moments, in turn on one process, two workers, and two processes on one folder."""
    chance, table, different = random.Random(0), list[dict[str, Any]](), 0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "spec.toml").write_text(SOAKED)
        program = [sys.executable, "-c", "from leakgauge.cli import main; main()", "audit", str(home / "spec.toml")]
        begun = time.perf_counter()
        subprocess.run([*program, "--quiet", "--out", str(home / "whole")], check=True, stdout=subprocess.DEVNULL)
        whole = time.perf_counter() - begun
        expected = contents(home / "whole")
        engines = {
            "one process": (1, []),
            "two workers": (1, ["--workers", "2"]),
            "a shared folder": (2, ["--engine", "shared"]),
        }
        for number, (engine, (many, words)) in enumerate(engines.items()):
            hits, run = 0, home / f"run{number}"
            command = [*program, *words, "--quiet", "--out"]
            wanted = KILLS // len(engines) + (number < KILLS % len(engines))
            for kill in range(wanted):
                started = [
                    subprocess.Popen([*command, str(run)], start_new_session=True, stdout=subprocess.DEVNULL)
                    for _ in range(many)
                ]
                time.sleep(chance.uniform(0.05, 0.5) * whole)
                for process in started:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                codes = [process.wait() for process in started]
                hits += any(code == -signal.SIGKILL for code in codes)
                finished = len(list(run.glob("cells/*.json")))
                context.say(f"{engine}, kill {kill + 1} of {wanted}: {finished} cells done")
                if finished == sum(name.endswith(".json") and name.startswith("cells/") for name in expected):
                    different += contents(run) != expected if (run / "result.json").exists() else 0
                    run = home / f"run{number}-{kill}"  # it had nothing left to do
            subprocess.run([*command, str(run)], check=True, stdout=subprocess.DEVNULL)
            after = contents(run)
            wrong = sum(after.get(n) != expected.get(n) for n in after.keys() | expected.keys() if "claims" not in n)
            different += wrong
            table.append(
                {"engine": engine, "kills": wanted, "that hit a running process": hits, "files that differ": wrong}
            )
    return Measurement(
        {
            "kills": Number(sum(row["kills"] for row in table), exactly(KILLS)),
            "kills that hit a running process": Number(
                sum(row["that hit a running process"] for row in table), at_least(0.8 * KILLS)
            ),
            "files that differ from the undisturbed run": Number(different, exactly(0)),
        },
        detail="at 5 % to 50 % of the time of an undisturbed run; result, plan, records and every cell, byte by byte; "
        "kills on a Ray cluster are counted by ray_cluster",
        table=table,
    )


@check("fuzzing", rows="fuzzing", cost="long")
def fuzzing(context: Context) -> Measurement:
    """Valid files changed at random, a hundred thousand per reader; those that were tried are kept when interrupted."""
    from evidence.fuzzing import READERS, fuzz, reader

    table: list[dict[str, Any]] = []
    for name in READERS:
        memory = context.scratch / f"{name.replace(' ', '-')}.json"
        tried, failures = json.loads(memory.read_text()) if memory.exists() else (0, [])
        with tempfile.TemporaryDirectory() as folder:
            while tried < INPUTS:
                failures += map(str, fuzz(reader(name), range(tried, tried + 1000), Path(folder) / "work"))
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
    """Processor time over records and cells, every point in a process of its own."""
    from benchmarks.scale import CURVES, exponent, measured

    curves = {}
    for name in ("records", "cells"):
        curves[name] = [measured(name, x) for x in CURVES[name].points]
        context.say(f"{name}: exponent {exponent(curves[name]):.2f}")
    last = curves["cells"][-1]
    return Measurement(
        {
            "exponent of records": Number(exponent(curves["records"]), at_most(1.05)),
            "exponent of cells": Number(exponent(curves["cells"]), at_most(1.05)),
            "overhead per cell at 10,000, ms": Number(1000 * last.seconds / last.x, at_most(5.0)),
            "peak memory at 10,000 cells, MB": Number(last.megabytes, at_most(2048)),
        },
        detail="slopes of the logarithms over the upper half of each curve; plan, store, judge and report of cells "
        "that compute nothing",
        table=[{"curve": name, **vars(point)} for name, points in curves.items() for point in points],
    )
