"""Memory that runs out in one cell: tried once more with fewer problems at once, and the result says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.adversary import Reconstruction
from leakgauge.adversary.memory import SMALLER, at_once, out_of_memory, smaller_chunks
from leakgauge.attacks import analytic
from leakgauge.audit import audit
from leakgauge.audit.work import RETRIED
from leakgauge.expr import Part
from leakgauge.observation import Observation
from leakgauge.study import Study
from leakgauge.task import Task


@dataclass(frozen=True, repr=False)
class Greedy(Part):
    """Takes more memory than any machine has, for all problems at once or for any."""

    always: bool = False

    def __call__(self, task: Task, observations: Sequence[Observation], **rest: Any) -> Reconstruction:
        if self.always or at_once(len(observations)) == len(observations):
            torch.empty(1 << 60, dtype=torch.uint8)
        return analytic()(task, observations, **rest)


def study(attack: Any) -> Study:
    generator = torch.Generator().manual_seed(0)
    records = torch.rand(60, 1, 6, 6, generator=generator), torch.arange(60) % 3
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    return Study(
        model, records, updates=6, defenses={"none": "identity()"}, adversaries={"mine": attack}, leave_out=["adaptive"]
    )


def test_the_second_try_is_made_with_fewer_problems_and_recorded(tmp_path: Path) -> None:
    faults: list[str | None] = []
    result = audit(study(Greedy()), tmp_path, report=lambda event: faults.append(event.fault))
    assert faults
    assert set(faults) == {None}
    (adversary, *_) = result.checkpoints[0].defenses[0].adversaries
    assert RETRIED in adversary.assumed
    assert RETRIED in (tmp_path / "result.json").read_text()


def test_a_cell_that_never_fits_fails_with_the_reason(tmp_path: Path) -> None:
    faults: list[str | None] = []
    result = audit(study(Greedy(always=True)), tmp_path, report=lambda event: faults.append(event.fault))
    assert all(fault and "allocate" in fault for fault in faults)
    assert result.checkpoints[0].defenses[0].attack.verdict == "incomplete"


def test_only_memory_is_tried_again() -> None:
    assert out_of_memory(MemoryError())
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert at_once(10) == 10
    with smaller_chunks():
        assert at_once(10) == -(-10 // SMALLER)
        assert at_once(1) == 1
    assert at_once(10) == 10


LIMITED = """
import json, resource, sys
from pathlib import Path
import torch
from leakgauge.adversary.memory import smaller_chunks
from leakgauge.audit import audit
from leakgauge.study import Study

def at_most(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))

def study():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 256, 3, padding=1), torch.nn.Sigmoid(), torch.nn.Flatten(),
                                torch.nn.Linear(256 * 64 * 64, 3))
    records = torch.rand(60, 1, 64, 64, generator=generator), torch.arange(60) % 3
    return Study(model, records, updates=12, defenses={"none": "identity()"},
                 adversaries={"generic": "inverting_gradients(steps=1)"}, leave_out=["adaptive"])

if __name__ == "__main__":
    torch.set_num_threads(1)
    with smaller_chunks():
        audit(study(), sys.argv[1] + "/small")
    small = at_most("VmPeak")
    if sys.argv[2:]:
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), resource.RLIM_INFINITY))
        audit(study(), sys.argv[1] + "/limited")
    else:
        audit(study(), sys.argv[1] + "/whole")
    print(json.dumps([small, at_most("VmPeak")]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_an_address_space_that_is_too_small_for_a_whole_chunk(tmp_path: Path) -> None:
    """The limit lies between what a quarter and what the whole of the problems take, measured by a run without one."""
    (tmp_path / "limited.py").write_text(LIMITED)
    command = [sys.executable, str(tmp_path / "limited.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    first = subprocess.run([*command, str(tmp_path / "a")], check=True, capture_output=True, text=True, env=environment)
    small, whole = json.loads(first.stdout)
    assert whole - small > 64 << 20, "the chunks do not differ enough to tell them apart"
    limit = str((small + whole) // 2)
    subprocess.run([*command, str(tmp_path / "b"), limit], check=True, capture_output=True, text=True, env=environment)
    limited = json.loads((tmp_path / "b" / "limited" / "result.json").read_text())
    (adversary, *_) = limited["checkpoints"][0]["defenses"][0]["adversaries"]
    assert RETRIED in adversary["assumed"]
    assert limited["checkpoints"][0]["defenses"][0]["attack"]["verdict"] != "incomplete"
