"""Flower's own simulation against FedAvg in this process. Needs flwr[simulation]; Ray runs in a network namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

import leakgauge as lg
from evidence import Measurement, Number, at_most, check
from leakgauge.fl import Federation, federate
from leakgauge.task import Task
from leakgauge.types import Records

ROOT = Path(__file__).parents[2]
ROUNDS, SEED = 3, 11
SCHEMES = ("I", "II", "two of three")
"""Both schemes of aggregation, and scheme I with two of three clients in a round."""
NAMESPACE = (
    "unshare", "-rn", "--pid", "--fork", "--kill-child", "--mount-proc",
    "sh", "-c", 'ip link set lo up && "$0" "$@"',
)  # fmt: skip
"""A network with nothing but loopback, since Ray listens on all interfaces; and when the command ends, all that it
started ends with it."""


def federation(scheme: str) -> tuple[Task, list[Records], Federation]:
    """Three clients of unequal size on a small network."""
    sample = lg.data.load("fashion_mnist_sample")
    torch.manual_seed(0)
    task = lg.Task(lg.models.build("mlp(width=10, depth=1)", sample.domain), sample.domain)
    records = sample.sample(36, seed=0)
    clients = [records[:6], records[6:16], records[16:]]
    sampled: Any = {"I": {"scheme": "I"}, "II": {"scheme": "II"}, "two of three": {"per_round": 2}}[scheme]
    return task, clients, Federation(rounds=ROUNDS, steps=3, minibatch=4, learning_rate=0.1, **sampled)


def gap(scheme: str) -> tuple[float, float]:
    """The largest difference between both results, and how far the training went."""
    from leakgauge.fl.on_flower import simulate

    task, clients, how = federation(scheme)
    here, there = (
        federate(task, clients, how, seed=SEED).state,
        simulate(task, clients, how, seed=SEED, cpus=2).state,
    )
    off = max(float((here[n] - there[n]).abs().max()) for n in task.params)
    return off, max(float((here[n] - p).abs().max()) for n, p in task.params.items())


def simulated(scheme: str) -> tuple[float, float]:
    """:func:`gap` in a process with a network of its own."""
    with tempfile.TemporaryDirectory(prefix="lg", dir="/tmp") as folder:  # Ray's sockets need short paths
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "RAY_AUTH_MODE": "token", "RAY_TMPDIR": folder}
        environment |= {"FLWR_HOME": f"{folder}/home", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        command = [*NAMESPACE, sys.executable, "-m", "evidence.checks.simulation", scheme]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=500, cwd=folder, check=False
        )
    answers = [line for line in done.stdout.splitlines() if line.startswith("gap ")]
    if done.returncode or not answers:
        raise RuntimeError(
            f"the simulation ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        )
    _, off, moved = answers[-1].split()
    return float(off), float(moved)


def isolated() -> bool:
    """Whether this machine allows a network namespace."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@check("flower_simulation", rows="flower-simulation", cost="minutes", uses=("leakgauge.fl.on_flower",))
def flower_simulation() -> Measurement:
    """FedAvg in this process against Flower's simulation: the same seeds, three rounds of three clients."""
    numbers = {}
    for scheme in SCHEMES:
        off, moved = simulated(scheme)
        numbers[f"{scheme}: largest difference"] = Number(off, at_most(1e-5))
        numbers[f"{scheme}: largest change by training"] = Number(moved)
    return Measurement(numbers, detail="3 clients of 6, 10 and 20 records, 3 local steps, Ray in a network namespace")


if __name__ == "__main__":
    try:
        print("gap", *gap(sys.argv[1]), flush=True)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # after a failed start threads of Flower's wait for ever
