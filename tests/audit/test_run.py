"""A run that cannot be lost: killed, resumed, with any number of workers, the result is the same to the byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leakgauge.audit import audit
from leakgauge.audit.cells import Cell
from leakgauge.audit.store import StoreError
from leakgauge.audit.work import Outcome, Work
from leakgauge.study import Study
from leakgauge.types import Progress

SPEC = """
[task]
model = "mlp(width=16, depth=1)"
data = "fashion_mnist_sample"
records = 12
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
generic = "inverting_gradients(steps=5)"
other = "adaptive(steps=5)"
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "spec.toml").write_text(SPEC)
    return Study.load(tmp_path / "spec.toml")


def test_a_run_says_something_of_every_defense(study: Study, tmp_path: Path) -> None:
    made = audit(study, tmp_path / "run").as_json()
    defenses = made["checkpoints"][0]["defenses"]
    assert [d["name"] for d in defenses] == ["none", "noisy"]
    assert all(len(d["records"]) == 12 for d in defenses)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == made
    exposed = [r["exposure"] for r in defenses[0]["records"]]
    assert exposed == sorted(exposed)


def test_a_second_run_does_no_work_and_says_the_same(study: Study, tmp_path: Path) -> None:
    audit(study, tmp_path / "run")
    first = (tmp_path / "run" / "result.json").read_bytes()
    seen: list[int] = []
    audit(study, tmp_path / "run", report=lambda event: seen.append(event.done))
    assert seen == []
    assert (tmp_path / "run" / "result.json").read_bytes() == first


def test_another_environment_is_refused(study: Study, tmp_path: Path) -> None:
    audit(study, tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text("{}")
    with pytest.raises(StoreError, match=r"another environment \(leakgauge None, here "):
        audit(study, tmp_path / "run")


def test_a_failing_cell_makes_its_defense_incomplete_and_stops_no_other(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Work.run

    def stumbling(work: Work, cell: Cell, progress: Progress | None = None) -> Outcome:
        if "gaussian" in repr(cell.defense):
            raise RuntimeError("stumbled")
        return real(work, cell, progress)

    monkeypatch.setattr(Work, "run", stumbling)
    made = audit(study, tmp_path / "run").as_json()
    none, noisy = made["checkpoints"][0]["defenses"]
    assert noisy["attack"]["verdict"] == "incomplete"
    assert "stumbled" in noisy["attack"]["why"]
    assert none["attack"]["verdict"] != "incomplete"
    assert all("stumbled" in fault for fault in made["faults"].values())


DRIVER = """
import sys
from pathlib import Path
from leakgauge.audit import audit
from leakgauge.study import Study
if __name__ == "__main__":
    spec, out, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    audit(Study.load(spec), out, workers=workers)
"""


DYING = """
import os
from dataclasses import dataclass
from leakgauge.attacks import inverting_gradients
from leakgauge.expr import Part

@dataclass(frozen=True, repr=False)
class Dying(Part):
    def __call__(self, task, observations, **given):
        if "gaussian" in repr(task.protection):
            os._exit(9)
        return inverting_gradients(3)(task, observations, **given)
"""


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_own_cell_only(tmp_path: Path) -> None:
    (tmp_path / "dying_code.py").write_text(DYING)
    text = SPEC.replace('"adaptive(steps=5)"', '"dying_code:Dying()"').replace("records = 12", "records = 8")
    (tmp_path / "spec.toml").write_text(text)
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "spec.toml"), str(tmp_path / "run"), "2"]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    made = json.loads((tmp_path / "run" / "result.json").read_text())
    none, noisy = made["checkpoints"][0]["defenses"]
    assert none["attack"]["verdict"] != "incomplete"
    assert noisy["attack"]["verdict"] == "incomplete"
    assert set(noisy["faults"]) == {"its worker process died twice (out of memory?)"}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_ten_kills_change_nothing(study: Study, tmp_path: Path, workers: int) -> None:
    audit(study, tmp_path / "undisturbed")
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    command = [sys.executable, str(driver), str(tmp_path / "spec.toml"), str(tmp_path / "killed"), str(workers)]
    chance = random.Random(workers)
    for _ in range(10):
        process = subprocess.Popen(command, start_new_session=True)
        time.sleep(chance.uniform(2, 8))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True)
    assert (tmp_path / "killed" / "result.json").read_bytes() == (tmp_path / "undisturbed" / "result.json").read_bytes()
