"""Several audits share one run folder: whoever dies or stops, the result is the same to the byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from leakgauge.audit import SharedFolder, audit
from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.claims import MOST, Claims, Watch
from leakgauge.audit.store import StoreError
from leakgauge.audit.work import Outcome, Work
from leakgauge.cli import app
from leakgauge.errors import LeakgaugeError
from leakgauge.storage.lock import SharedLock, locked
from leakgauge.study import Study
from leakgauge.types import Progress

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
DRIVER = """
import sys
from pathlib import Path
from leakgauge.audit import SharedFolder, audit
from leakgauge.study import Study
if __name__ == "__main__":
    audit(Study.load(Path(sys.argv[1])), Path(sys.argv[2]), engine=SharedFolder(lease=3.0))
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "spec.toml").write_text(SPEC)
    return Study.load(tmp_path / "spec.toml")


def contents(run: Path) -> dict[str, bytes]:
    """What a run leaves, but for what says when it happened."""
    dated = {"log.jsonl", "timings.json"}
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in dated)
    return {str(path.relative_to(run)): path.read_bytes() for path in files if not path.name.startswith(".")}


def test_two_audits_share_a_folder(study: Study, tmp_path: Path) -> None:
    audit(study, tmp_path / "alone")
    faults: list[str | None] = []

    def work() -> None:
        audit(study, tmp_path / "run", engine=SharedFolder(), report=lambda event: faults.append(event.fault))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults
    assert not any(faults)
    assert contents(tmp_path / "run") == contents(tmp_path / "alone")
    events = [line for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines() if '"done"' in line]
    assert len(events) == len({line.partition('"cell":"')[2][:24] for line in events})  # no cell was computed twice


def test_a_plain_audit_is_refused_in_a_shared_folder_and_a_shared_one_in_a_plain(study: Study, tmp_path: Path) -> None:
    audit(study, tmp_path)
    lock = SharedLock(tmp_path)
    with lock.joining() as alone:
        assert alone
    with pytest.raises(LeakgaugeError, match="--engine shared"):
        audit(study, tmp_path)
    with pytest.raises(StoreError, match="another audit"):
        audit(study, tmp_path, engine=SharedFolder(), redact=True)
    audit(study, tmp_path, engine=SharedFolder())
    with lock.leaving() as alone:
        assert alone
    with locked(tmp_path), pytest.raises(LeakgaugeError, match="another audit is running"):
        audit(study, tmp_path, engine=SharedFolder())


def test_a_claim_has_one_holder_until_it_expires(tmp_path: Path) -> None:
    first, second, third = (Claims(tmp_path, lease=0.2) for _ in range(3))
    claim = first.take("cell")
    assert claim is not None
    with first.held(claim):
        until = time.monotonic() + 0.6  # three leases, renewed
        while time.monotonic() < until:
            assert second.take("cell") is None
            time.sleep(second.pause)
    stopped = first.take("cell")  # and never renewed
    assert stopped is not None
    second.take("cell"), third.take("cell")
    taken: list[Path] = []
    until = time.monotonic() + 10
    while not taken and time.monotonic() < until:
        time.sleep(second.pause)
        taken += [path for path in (second.take("cell"), third.take("cell")) if path is not None]
    (successor,) = taken
    with first.held(stopped):  # goes on after all
        pass
    assert successor.exists()


def test_a_cell_that_nobody_survives_has_failed(tmp_path: Path) -> None:
    claims = Claims(tmp_path, lease=0.05)
    lost = 0
    until = time.monotonic() + 10
    while claims.fault("cell") is None and time.monotonic() < until:
        lost += claims.take("cell") is not None
        time.sleep(claims.pause)
    assert lost == MOST
    assert "died or stopped" in str(claims.fault("cell"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_and_links_among_the_claims_stop_nothing_and_lead_nowhere(tmp_path: Path) -> None:
    claims, outside = Claims(tmp_path, lease=0.1), tmp_path / "outside"
    outside.write_text("mine")
    claim = claims.take("cell")
    assert claim is not None
    claim.unlink()
    claim.symlink_to(outside)
    with claims.held(claim):
        time.sleep(0.1)
    assert outside.read_text() == "mine"
    os.mkfifo(claims.place / "pipe.0")
    assert claims.take("pipe") is None
    os.mkfifo(claims.place / "pipe.failed")
    (claims.place / "link.failed").symlink_to("/dev/zero")
    assert claims.fault("pipe") == ""
    assert claims.fault("link") is None


def test_a_clock_that_jumps_ends_no_lease() -> None:
    watch = Watch(pause=1.0)
    assert watch.unchanged(b"a", 0.0) == 0
    assert watch.unchanged(b"a", 1.0) == 1
    assert watch.unchanged(b"a", 1e9) == 3  # one look, however long ago the last one was
    assert watch.unchanged(b"a", -1e9) == 3
    assert watch.unchanged(b"b", -1e9 + 1) == 0


def test_a_fault_is_everybodys_and_its_children_do_not_start(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def stumbling(work: Work, cell: Cell, progress: Progress | None = None) -> Outcome:
        tried.append(cell.kind)
        raise RuntimeError("stumbled")

    monkeypatch.setattr(Work, "run", stumbling)
    lock = SharedLock(tmp_path)
    with lock.joining():
        pass
    with pytest.raises(StoreError):  # nothing is planned yet: not the same audit
        audit(study, tmp_path, engine=SharedFolder())
    lock.close()
    result = audit(study, tmp_path, engine=SharedFolder())
    assert tried == ["train"]
    assert any("stumbled" in fault for fault in result.faults.values())
    assert any("builds on" in fault for fault in result.faults.values())


def test_workers_of_a_shared_audit_are_processes_of_their_own(study: Study, tmp_path: Path) -> None:
    spec = str(tmp_path / "spec.toml")
    ended = CliRunner().invoke(app, ["audit", spec, "--engine", "shared", "--workers", "2"])
    assert ended.exit_code == 2
    assert "start the command several times" in ended.output


@pytest.mark.slow
def test_three_processes_one_killed_one_stopped(tmp_path: Path) -> None:
    text = SPEC.replace("records = 6", "records = 24").replace("steps=2)", "steps=60)")
    (tmp_path / "spec.toml").write_text(text.replace("[adversaries]", 'noisy = "gaussian(std=0.01)"\n[adversaries]'))
    audit(Study.load(tmp_path / "spec.toml"), tmp_path / "alone")
    (tmp_path / "driver.py").write_text(DRIVER)
    run = tmp_path / "run"
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "spec.toml"), str(run)]
    steady, killed, stopped = (subprocess.Popen(command) for _ in range(3))
    assert _holds(run, killed.pid)
    killed.kill()
    killed.wait()
    assert _holds(run, stopped.pid)
    os.kill(stopped.pid, signal.SIGSTOP)
    assert steady.wait(timeout=600) == 0  # it waits for both leases and computes their cells
    result = (run / "result.json").read_bytes()
    os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.wait(timeout=600) == 0
    assert (run / "result.json").read_bytes() == result
    assert contents(run) == contents(tmp_path / "alone")
    assert not list(run.glob("**/.*.json.*"))


def _holds(run: Path, pid: int) -> bool:
    """Wait until a process holds a claim."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for path in run.glob("claims/*"):
            try:
                if f" {pid} " in path.read_text():
                    return True
            except OSError:
                continue
        time.sleep(0.02)
    return False
