"""The program as people meet it: the demo in a browser, kills, hostile files, the doctor, captured updates."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, check, exactly, numbers
from evidence.hostile import cases, faults
from leakgauge.metrics import mean_interval

ROOT = Path(__file__).resolve().parents[2]


@check("demo", rows="demo", cost="minutes", uses=("leakgauge.cli", "examples/demo.toml", "Makefile", "pyproject.toml"))
def demo(context: Context) -> Measurement:
    """`make demo` in a fresh clone, its own virtual environment included; the report opened from disk in Chromium."""
    from evidence.browser import examine

    clone = context.scratch / "clone"
    if not (clone / "demo-output" / "report.html").exists():
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        outside = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        subprocess.run(
            ["make", "-s", ".venv/.installed"], cwd=clone, check=True, env=outside, stdout=subprocess.DEVNULL
        )
        start = time.perf_counter()
        ended = subprocess.run(["make", "-s", "demo"], cwd=clone, env=outside, capture_output=True, text=True)
        (context.scratch / "seconds").write_text(f"{time.perf_counter() - start:.0f}")
        (context.scratch / "last").write_text(ended.stdout.strip().splitlines()[-1] if ended.stdout else ended.stderr)
        if ended.returncode:
            return Measurement({"exit code": Number(ended.returncode, exactly(0))}, detail=ended.stderr[-500:])
    seen = examine(clone / "demo-output" / "report.html", shots=context.scratch)
    last = (context.scratch / "last").read_text()
    return Measurement(
        {
            "last lines that name the report": Number(int("report.html" in last), exactly(1)),
            "messages on the console": Number(len(seen.said), exactly(0)),
            "files fetched": Number(len(seen.fetched), exactly(0)),
            "images": Number(seen.images, at_least(1)),
            "images without pixels": Number(seen.blank, exactly(0)),
            "tables that do not sort": Number(int(not seen.sorts), exactly(0)),
            "least contrast in light": Number(seen.contrast["light"], at_least(4.5)),
            "least contrast in dark": Number(seen.contrast["dark"], at_least(4.5)),
        },
        detail="without the installation it took "
        f"{(context.scratch / 'seconds').read_text()} s on {os.cpu_count()} shared cores",
    )


SOAKED = """
[task]
model = "mlp(width=16, depth=1)"
records = 20
[checkpoints]
train_steps = [0, 20]
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
generic = "inverting_gradients(steps=40)"
tuned = ["adaptive(steps=20)", "adaptive(steps=30)"]
"""
KILLS = 10


@check("soak", rows="soak", cost="minutes")
def soak(context: Context) -> Measurement:
    """Ten SIGKILLs of the whole process group at random moments, then resumed, with one and with two workers."""
    table: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "spec.toml").write_text(SOAKED)
        for workers in (1, 2):
            program = [sys.executable, "-c", "from leakgauge.cli import main; main()", "audit", str(home / "spec.toml")]
            command = [*program, "--workers", str(workers), "--quiet", "--out"]
            start = time.perf_counter()
            subprocess.run([*command, str(home / f"whole-{workers}")], check=True, stdout=subprocess.DEVNULL)
            whole = time.perf_counter() - start
            chance, out, done = random.Random(workers), home / f"killed-{workers}", []
            for kill in range(KILLS):
                process = subprocess.Popen([*command, str(out)], start_new_session=True, stdout=subprocess.DEVNULL)
                time.sleep(chance.uniform(0.05, 0.35) * whole)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                left = "killed" if process.returncode == -signal.SIGKILL else "had ended"
                done.append(f"{len(list((out / 'cells').glob('*.json')))} {left}")
                context.say(f"{workers} workers, kill {kill + 1}: {done[-1]}")
            subprocess.run([*command, str(out)], check=True, stdout=subprocess.DEVNULL)
            same = (out / "result.json").read_bytes() == (home / "whole-1" / "result.json").read_bytes()
            killed = sum("killed" in one for one in done)
            cells = len(list((out / "cells").glob("*.json")))
            table.append(
                {
                    "workers": workers,
                    "cells": cells,
                    "killed": killed,
                    "cells done each time": "; ".join(done),
                    "byte-identical to one undisturbed worker": "yes" if same else "no",
                }
            )
    good = sum(row["byte-identical to one undisturbed worker"] == "yes" for row in table)
    return Measurement(
        {
            "runs that are not byte-identical": Number(len(table) - good, exactly(0)),
            "least kills that hit a running process": Number(min(row["killed"] for row in table), at_least(KILLS - 2)),
        },
        detail=f"{KILLS} kills each, at 5 % to 35 % of the time that an undisturbed run takes; training, tuning and "
        "attack cells; two workers are compared with one",
        table=table,
    )


@check("hostile_files", rows="hostile-files", cost="minutes")
def hostile_files(context: Context) -> Measurement:
    """Malformed specs, weights, updates and data sets, each through the program: message, exit code 2, nothing run."""
    wrong, every = [], cases()
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(every):
            found = faults(case, Path(folder) / str(number))
            wrong += [{"case": case.name, "fault": "; ".join(found)}] if found else []
            if number % 50 == 49:
                context.say(f"{number + 1} of {len(every)}, {len(wrong)} wrong")
    return Measurement(
        {"files": Number(len(every), at_least(200)), "answered wrongly": Number(len(wrong), exactly(0))},
        detail="each has a line `error: where: what; remedy`, exit code 2, no traceback, an answer within 60 s, "
        "no code run, and an earlier result beside it untouched",
        table=wrong,
    )


@check("doctor_faults", rows="doctor", cost="minutes")
def doctor_faults(context: Context) -> Measurement:
    """Faults injected one at a time into a plain PyTorch client: does the doctor name each, and nothing else?"""
    from tests.doctor.test_doctor import FAULTS, diagnosed

    table = []
    for name, (given, differs, said) in FAULTS.items():
        found = diagnosed(**given)
        named = found.status == "replays otherwise" and found.differs == differs and said in found.sentence
        alike = "; ".join(" = ".join(each) for each in found.indistinguishable)
        table.append({"fault": name, "named": named, "said": ", ".join(found.differs), "cannot be told from": alike})
        context.say(f"{name}: {'named' if named else found.sentence}")
    count = sum(bool(row["named"]) for row in table)
    return Measurement(
        {"faults": Number(len(table), at_least(10)), "not named": Number(len(table) - count, exactly(0))},
        detail="each as its equivalence class where the evidence cannot separate settings",
        table=table,
    )


@check("inspect_checkpoints", rows="inspect", cost="minutes")
def inspect_checkpoints(context: Context) -> Measurement:
    """`leakgauge inspect` on two checkpoints of a plain PyTorch loop, batch 1, one step, rate unknown; 5 images."""
    from leakgauge.inspect.captures import captured
    from leakgauge.inspect.running import inspect
    from leakgauge.storage.states import read_state

    found = lg.data.load("fashion_mnist_sample")
    private = found.sample(5, seed=3, split="test")
    values, intervals, worst, table = {}, {}, {}, []
    for name in ("dlg_lenet", "bayes_cnn"):
        scores = []
        for i in range(len(private)):
            one = private[i : i + 1]
            with tempfile.TemporaryDirectory() as folder:
                model = lg.models.build(name, found.domain, seed=i)
                before, after = Path(folder) / "a.safetensors", Path(folder) / "b.safetensors"
                save_file(model.state_dict(), before)
                optimiser = torch.optim.SGD(model.parameters(), lr=0.01 + 0.02 * i)
                nn.functional.cross_entropy(model(one.inputs), one.labels).backward()
                optimiser.step()
                save_file(model.state_dict(), after)
                fresh = lg.models.build(name, found.domain, seed=99)
                capture = captured(read_state(before), read_state(after), fresh)
                (made,) = inspect(fresh, found.domain, [capture], known=one, draws=3)
            scores.append(float(made.psnr[0]))
            table.append(
                {
                    "network": name,
                    "image": i,
                    "PSNR": round(scores[-1], 1),
                    "of noise": round(float(made.null_psnr[0]), 1),
                }
            )
            context.say(str(table[-1]))
        found_mean = mean_interval(torch.tensor(scores))
        values[name], intervals[name] = found_mean.mean, (found_mean.low, found_mean.high)
        worst[f"{name}, worst image"] = min(scores)
    return Measurement(
        numbers(values, intervals) | numbers(worst, bars=above(20)),
        detail="mean PSNR in dB with interval, and the worst image; the weights come from the files alone",
        table=table,
    )
