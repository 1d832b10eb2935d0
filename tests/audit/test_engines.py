"""Engines: the same result whatever runs the cells, with every text read and every task built once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.audit import InProcess, LocalPool, audit
from leakgauge.audit.cells import AttackCell, Cell, TrainCell, TuneCell
from leakgauge.audit.engines import Finished
from leakgauge.audit.plan import plan
from leakgauge.audit.store import Store
from leakgauge.errors import LeakgaugeError
from leakgauge.expr import reading
from leakgauge.study import Study
from leakgauge.task import Task

SPEC = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=8, depth=1)"
records = 12
[checkpoints]
train_steps = [0, 4]
[defenses]
none = "identity()"
noisy = "clip(norm=1.0) | gaussian(std=0.01)"
mixed = "mixup(k=2)"
[adversaries]
linear = "analytic()"
tuned = ["inverting_gradients(steps=2)", "inverting_gradients(steps=3)"]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each text was read in this process."""
    counted, read = Counter[str](), reading._tree

    def counting(text: str) -> Any:
        counted[text] += 1
        return read(text)

    monkeypatch.setattr(reading, "_tree", counting)
    return counted


@pytest.mark.slow
def test_every_expression_is_parsed_once(spec: Path, texts: Counter[str], tmp_path: Path) -> None:
    study = Study.load(spec)
    assert texts == {
        "mlp(width=8, depth=1)": 1,
        "identity()": 1,
        "clip(norm=1.0) | gaussian(std=0.01)": 1,
        "mixup(k=2)": 1,
        "analytic()": 1,
        "inverting_gradients(steps=2)": 1,
        "inverting_gradients(steps=3)": 1,
    }
    texts.clear()
    audit(study, tmp_path / "run")
    assert not texts  # after the study nothing is text


@pytest.mark.slow
def test_a_task_is_built_once_per_defense_and_checkpoint(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, prepare = Counter[str](), Task.__post_init__

    def counting(task: Task) -> None:
        built[repr(task.protection)] += 1
        prepare(task)

    monkeypatch.setattr(Task, "__post_init__", counting)
    study = Study.load(spec)
    assert built == {"identity()": 1, "clip(norm=1.0) | gaussian(std=0.01)": 1, "mixup(k=2)": 1}
    assert len(plan(study).cells) > 40
    audit(study, tmp_path / "run")
    # as given and at step 4; without a defense step 0 is a checkpoint of the training, too
    assert built == {"identity()": 3, "clip(norm=1.0) | gaussian(std=0.01)": 2, "mixup(k=2)": 2}


def test_cells_carry_values(spec: Path) -> None:
    study = Study.load(spec)
    by: dict[type, list[Cell]] = {}
    for cell in plan(study).cells:
        by.setdefault(type(cell), []).append(cell)
    assert set(by) == {TrainCell, TuneCell, AttackCell}
    attack = next(cell for cell in by[AttackCell] if isinstance(cell, AttackCell) and cell.defense.input)
    assert attack.defense is study.defenses["mixed"]
    assert attack.settings[0] is study.adversaries["linear"][0]
    assert attack.clients == ((0, 12),)
    assert attack.threat == study.threat


@pytest.mark.slow
def test_an_audit_leaves_the_threads_of_torch_alone(spec: Path, tmp_path: Path) -> None:
    inside: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        audit(Study.load(spec), tmp_path / "run", report=lambda _: inside.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert set(inside) == {1}


@dataclass(frozen=True)
class Backwards:
    """An engine of one's own: attacks in another order."""

    def run(self, study: Study, cells: Sequence[Cell], store: Store) -> Iterator[Finished]:
        parents = [cell for cell in cells if cell.kind != "attack"]
        attacks = [cell for cell in cells if cell.kind == "attack"]
        return InProcess().run(study, [*parents, *reversed(attacks)], store)


def test_the_result_does_not_depend_on_the_engine(spec: Path, tmp_path: Path) -> None:
    """Clients with a few records each, mixed: several of them share a cell."""
    spec.write_text(SPEC.replace("records = 12", "records = 12\nclient_records = 4").replace("[0, 4]", "[4]"))
    study = Study.load(spec)
    for name, engine in (("alone", InProcess()), ("pool", LocalPool(2)), ("own", Backwards())):
        result = audit(study, tmp_path / name, engine=engine)
        assert not result.faults
    alone, pool, own = ((tmp_path / name / "result.json").read_bytes() for name in ("alone", "pool", "own"))
    assert alone == pool == own


class Hooked(nn.Sequential):
    """A network that cannot be sent to another process."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, 10))
        self.secret = lambda: None


def test_what_cannot_be_sent_to_workers_is_one_sentence(tmp_path: Path) -> None:
    study = Study(Hooked(), lg.data.load("fashion_mnist_sample"), adversaries={"a": "analytic()"})
    with pytest.raises(LeakgaugeError, match=r"cannot be sent to worker processes .*; say workers=1, or put"):
        audit(study, tmp_path / "run", workers=2)


UNIX_ONLY = """
import sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None  # as on a system that has none of them
import leakgauge.cli
import leakgauge.audit.auditing, leakgauge.audit.estimate, leakgauge.study.draft
from leakgauge.audit.estimate import _peak_megabytes
assert _peak_megabytes() is None
"""


def test_nothing_that_only_unix_has_is_needed_to_check_and_to_audit(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", UNIX_ONLY], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_python_m_leakgauge_is_the_program(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "leakgauge", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == f"leakgauge {lg.__version__}\n"
