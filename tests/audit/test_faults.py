"""What can go wrong around a run: two at once, files that changed, a full disk, a driver that is killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from leakgauge.audit import audit
from leakgauge.audit.environment import environment
from leakgauge.audit.store import StoreError
from leakgauge.cli import app
from leakgauge.errors import LeakgaugeError
from leakgauge.storage.lock import locked
from leakgauge.study import Study
from tests.audit.test_run import DRIVER

SPEC = """
[task]
model = "mlp(width=8, depth=1)"
data = "fashion_mnist_sample"
records = 6
[checkpoints]
train_steps = [2]
[defenses]
none = "identity()"
[adversaries]
adaptive = "adaptive(steps=2)"
generic = "inverting_gradients(steps=2)"
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "spec.toml").write_text(SPEC)
    return Study.load(tmp_path / "spec.toml")


def test_a_second_audit_in_one_folder_is_refused(study: Study, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with locked(run), pytest.raises(LeakgaugeError, match="another audit"):
        audit(study, run)
    audit(study, run)  # the lock ended with the one who held it


def test_tensors_that_are_not_what_was_committed_are_made_again(study: Study, tmp_path: Path) -> None:
    run = tmp_path / "run"
    audit(study, run)
    files = {path.name: path.read_bytes() for path in run.glob("cells/*")}
    tensors = sorted(run.glob("cells/*.safetensors"))
    tensors[0].write_bytes(tensors[0].read_bytes()[:100])
    tensors[1].unlink()
    cells = [path for path in sorted(run.glob("cells/*.json")) if path.stem not in (tensors[0].stem, tensors[1].stem)]
    cells[0].write_text("{")
    done: list[str] = []
    audit(study, run, report=lambda event: done.append(event.cell.id))
    assert sorted(done) == sorted((tensors[0].stem, tensors[1].stem, cells[0].stem))
    assert {path.name: path.read_bytes() for path in run.glob("cells/*")} == files


def test_redaction_sweeps_what_a_kill_left(study: Study, tmp_path: Path) -> None:
    run = tmp_path / "run"
    audit(study, run)
    left = [run / ".records.safetensors.abcd1234", run / ".report.html.x_y_z012", run / "cells" / ".a.json.01234567"]
    for path in left:
        path.write_bytes(b"private")
    (run / ".gitignore").write_text("*")
    audit(study, run, redact=True)
    assert not any(path.exists() for path in left)
    assert (run / ".gitignore").exists()


def test_a_folder_that_cannot_hold_a_run(study: Study, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LeakgaugeError, match="it is a file"):
        audit(study, tmp_path / "file")
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o755)
    audit(study, loose)
    assert loose.stat().st_mode & 0o077 == 0


def test_a_choice_that_is_none_of_the_settings_is_refused(tmp_path: Path) -> None:
    text = SPEC.replace('"adaptive(steps=2)"', '["adaptive(steps=2)", "adaptive(steps=3)"]')
    (tmp_path / "spec.toml").write_text(text + "[tuning]\nrecords = 4\n")
    study, run = Study.load(tmp_path / "spec.toml"), tmp_path / "run"
    audit(study, run)
    read = {path: json.loads(path.read_text()) for path in run.glob("cells/*.json")}
    (tuned,) = (path for path, cell in read.items() if cell["kind"] == "tune")
    attacks = [path for path, cell in read.items() if cell["kind"] == "attack" and "steps=" in cell["adversary"]]
    tuned.write_text(json.dumps({**read[tuned], "place": -1, "chosen": "torch:os.system('true')"}))
    for path in attacks:
        path.unlink()
    faults: list[str | None] = []
    audit(study, run, report=lambda event: faults.append(event.fault))
    assert any(fault and StoreError.__name__ in fault for fault in faults)


def test_the_arithmetic_belongs_to_the_environment() -> None:
    assert environment() == environment()
    command = [sys.executable, "-c", "from leakgauge.audit.run import environment; print(environment()['arithmetic'])"]
    slower = {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    other = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **slower})
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):  # else nothing can be taken away
        assert other.stdout.strip() != environment()["arithmetic"]


def test_a_full_disk_is_one_sentence_and_loses_nothing(study: Study, tmp_path: Path) -> None:
    limit = tmp_path / "limit.py"
    limit.write_text(
        "import resource, signal, sys\n"
        "from leakgauge.cli import app\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        "app(['audit', 'spec.toml', '--quiet', '--out', 'run'])\n"
    )
    ended = subprocess.run([sys.executable, str(limit)], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "error: " in ended.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    resumed = CliRunner().invoke(app, ["audit", str(tmp_path / "spec.toml"), "--quiet", "--out", str(tmp_path / "run")])
    assert resumed.exit_code == 0, resumed.output


@pytest.mark.slow
@pytest.mark.parametrize("sent", [(signal.SIGKILL,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
def test_a_driver_that_ends_leaves_no_worker(tmp_path: Path, sent: tuple[signal.Signals, ...]) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace("steps=2", "steps=20000"))
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "spec.toml"), str(tmp_path / "run"), "2"]
    driver = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    group = os.getpgid(driver.pid)
    assert _eventually(lambda: len(_members(group)) >= 4)  # the driver, the resource tracker, two workers
    for one in sent:
        driver.send_signal(one)
        time.sleep(0.3)
    driver.wait(timeout=60)
    assert _eventually(lambda: not _members(group)), _members(group)


def _eventually(true: object, seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():  # type: ignore[operator]
            return True
        time.sleep(0.2)
    return False


def _members(group: int) -> list[str]:
    """The living processes of a process group."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(None, 2) for line in listed.stdout.splitlines())
    return [row[-1] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]


@pytest.mark.parametrize(
    "change",
    [
        {"scores": None},
        {"scores": {"ssim": ["a"] * 8, "psnr": ["b"] * 8}},
        {"scores": {"ssim": [1e308] * 8, "psnr": [1e308] * 8}},
        {"labels": "abc"},
        {"nearness": []},
        {"evaluations": None},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_cells_that_say_something_else_are_one_sentence(
    study: Study, tmp_path: Path, change: dict[str, object]
) -> None:
    run = tmp_path / "run"
    audit(study, run)
    for path in (run / "cells").glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StoreError, match="no result follows from these cells"):
        audit(study, run)


def test_a_run_folder_may_be_named_like_a_file(study: Study, tmp_path: Path) -> None:
    audit(study, tmp_path / "run.json")
    assert (tmp_path / "run.json" / "result.json").is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
