"""What happens around a run: folders that vanish or cannot be written, workers killed at a bad moment, changed data."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from leakgauge.audit import audit
from leakgauge.audit.run import Event
from leakgauge.cli import app
from leakgauge.errors import LeakgaugeError
from leakgauge.study import Study

SPEC = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=4, depth=1)"
data = "{data}"
records = 8
[defenses]
none = "identity()"
"schräg → <b>" = "gaussian(std=0.01)"
[adversaries]
linear = "analytic()"
"""


def written(folder: Path, data: str = "fashion_mnist_sample") -> Path:
    path = folder / "spec.toml"
    path.write_text(SPEC.replace("{data}", data), encoding="utf-8")
    return path


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.load(written(tmp_path))


def contents(run: Path) -> dict[str, bytes]:
    names = ("result.json", "plan.json", "manifest.json")
    return {path.name: path.read_bytes() for path in [*run.glob("cells/*"), *(run / name for name in names)]}


# --- the folder


def test_a_folder_that_vanishes_ends_the_audit_with_one_sentence(study: Study, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended: list[Event] = []

    def remove(event: Event) -> None:
        ended.append(event)
        shutil.rmtree(run)

    with pytest.raises(LeakgaugeError, match="vanished while the audit ran"):
        audit(study, run, report=remove)
    assert len(ended) < 6
    audit(study, run)
    assert (run / "result.json").exists()


@contextmanager
def somebody_else() -> Iterator[None]:
    """As a user who may not write everywhere: root may."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        for path in Path(name).rglob("*"):
            if path.is_dir():
                path.chmod(0o700)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_a_folder_without_permission_is_refused_before_anything_runs(study: Study, open_folder: Path) -> None:
    locked = open_folder / "run"
    locked.mkdir(mode=0o555)
    with somebody_else(), pytest.raises(LeakgaugeError, match=r"cannot hold a run \(.*[Pp]ermi.*\); give a folder"):
        audit(study, locked / "below")
    assert not list(locked.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_a_folder_that_becomes_read_only_loses_nothing(study: Study, tmp_path: Path, open_folder: Path) -> None:
    run = open_folder / "run"
    run.mkdir()
    if os.geteuid() == 0:
        os.chown(run, 65534, 65534)
    ended: list[Event] = []

    def lock(event: Event) -> None:
        ended.append(event)
        (run / "cells").chmod(0o500)
        run.chmod(0o500)

    with somebody_else():
        with pytest.raises(OSError, match=r"[Pp]ermission"):
            audit(study, run, report=lock)
        assert ended[0].fault is None
        run.chmod(0o700)
        (run / "cells").chmod(0o700)
        before = {path.name: path.read_bytes() for path in run.glob("cells/*.json")}
        audit(study, run)
    assert before
    after = contents(run)
    assert before.items() <= after.items()
    audit(study, tmp_path / "undisturbed")
    assert after == contents(tmp_path / "undisturbed")


def test_a_terminal_without_the_characters_of_a_name(tmp_path: Path) -> None:
    """A Latin-1 terminal has no arrow: it shows something else, and the reports are written all the same."""
    runner, run = CliRunner(charset="latin-1"), tmp_path / "run"
    ended = runner.invoke(app, ["audit", str(written(tmp_path)), "--quiet", "--out", str(run)])
    assert ended.exit_code == 0, ended.output
    assert "schräg ? <b>" in ended.output
    assert (run / "report.html").exists()


# --- data


def test_workers_attack_the_data_of_the_plan(tmp_path: Path) -> None:
    """The file is replaced after the start: a worker gets the records, not the name of a file."""
    path, chance = tmp_path / "d.npz", np.random.default_rng(0)
    for _ in range(2):
        np.savez(path, inputs=chance.random((80, 1, 8, 8), np.float32), labels=np.arange(80) % 4)
        if not (tmp_path / "spec.toml").exists():
            study = Study.load(written(tmp_path, str(path)))
            records = study.records.inputs.clone()
    sent = pickle.loads(pickle.dumps(study))  # noqa: S301 - as a worker gets it
    assert torch.equal(sent.records.inputs, records)
    assert not torch.equal(Study.load(tmp_path / "spec.toml").records.inputs, records)


# --- workers


@pytest.mark.slow
def test_a_worker_that_dies_while_nobody_waits_for_it(study: Study, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(_: Event) -> None:
        if not killed:
            victim = multiprocessing.active_children()[0]
            killed.append(victim.pid or 0)
            victim.kill()
            victim.join()
            time.sleep(1)  # the pool notices, so that the next cell cannot be submitted

    audit(study, tmp_path / "run", workers=2, report=kill)
    assert killed
    audit(study, tmp_path / "undisturbed")
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")


class Deadly(nn.Linear):
    """A model whose loading ends the process."""

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        if multiprocessing.parent_process() is not None:
            os._exit(7)


@pytest.mark.slow
def test_a_worker_that_cannot_load_the_study_is_started_once(tmp_path: Path) -> None:
    records = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    model = nn.Sequential(nn.Flatten(), Deadly(16, 3))
    study = Study(model, records, updates=6, defenses={"none": "identity()"}, adversaries={"linear": "analytic()"})
    with pytest.raises(LeakgaugeError, match="a worker process dies while it loads the study"):
        audit(study, tmp_path / "run", workers=2)
    assert not multiprocessing.active_children()
