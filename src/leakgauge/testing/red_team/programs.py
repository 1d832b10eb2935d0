"""Cases that are asked on the command line: files in a folder, ``leakgauge audit`` and ``leakgauge inspect``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from leakgauge.errors import LeakgaugeError
from leakgauge.testing.red_team import victims
from leakgauge.testing.red_team.audits import pictures

USAGE = 2
"""The exit code of a refusal that the program explains."""

BUILD = """from torch import nn


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 10))
"""
SPEC = """[task]
model = "my_clinic:build"
weights = "round12.pt"
data = "scans.npz"
records = 8
{task}

[defenses]
it = "{defense}"

[adversaries]
generic = "inverting_gradients(steps=60)"
adaptive = "adaptive(steps=60)"

[threat]
labels = "{labels}"
"""


def run(folder: Path, *words: str) -> None:
    """Run the program there; a refusal in a sentence is raised as one, anything else that fails is a crash."""
    command = [sys.executable, "-m", "leakgauge", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == USAGE and "Traceback" not in done.stderr:
        raise LeakgaugeError(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"leakgauge {words[0]} exited with {done.returncode}: {done.stderr[-2000:]}")


def network() -> nn.Module:
    """What ``my_clinic:build`` builds, with known weights."""
    return victims.dense(width=32)


@dataclass(frozen=True)
class Spec:
    """A spec of one defense on a network and records in files; its verdict is the answer."""

    defense: str
    task: str = ""
    labels: str = "known"

    def __call__(self) -> str:
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "my_clinic.py").write_text(BUILD)
            model = network()
            torch.save(model.state_dict(), folder / "round12.pt")
            inputs, labels = pictures()
            np.savez(folder / "scans.npz", inputs=inputs.numpy(), labels=labels.numpy())
            (folder / "privacy.toml").write_text(SPEC.format(defense=self.defense, task=self.task, labels=self.labels))
            run(folder, "audit", "privacy.toml", "--quiet", "--own-code", "--out", "run")
            result = json.loads((folder / "run" / "result.json").read_text())
            return str(result["checkpoints"][0]["defenses"][0]["attack"]["verdict"])


@dataclass(frozen=True)
class Files:
    """A client's weights before and after one step of SGD, and ``leakgauge inspect``.

    With ``known``, the answer is whether the client's own record is nearer than from noise; without, whether the
    update is explained better than noise.
    """

    change: victims.Change | None = None
    record: int = 0
    batch: int = 1
    known: bool = False
    words: tuple[str, ...] = ()
    rate: float = 0.03

    def __call__(self) -> str:
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "my_clinic.py").write_text(BUILD)
            inputs, labels = (tensor[self.record : self.record + self.batch] for tensor in pictures())
            sent = victims.client(network(), inputs, labels, self.change, seed=self.record)
            after = {key: value - self.rate * sent.gradient[key] for key, value in sent.before.items()}
            torch.save(sent.before, folder / "before.pt")
            torch.save(after, folder / "after.pt")
            files = ["--before", "before.pt", "--after", "after.pt", "--model", "my_clinic:build"]
            shape = ["--shape", "1,14,14"]
            if self.known:
                np.savez(folder / "mine.npz", inputs=inputs.numpy(), labels=labels.numpy())
                shape = ["--known", "mine.npz"]
            run(folder, "inspect", *files, *shape, "--batch", str(self.batch), *self.words)
            (finding,) = json.loads((folder / "inspection" / "inspect.json").read_text())
            leaks = any(finding["nearer"]) if self.known else finding["above_noise"]
            return "above noise" if leaks else "no better than noise"
