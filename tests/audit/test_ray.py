"""The Ray engine: what can be tried without a cluster, and everything on a real one (slow)."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from leakgauge.audit import InProcess, RayCluster, audit
from leakgauge.audit.cells import TrainCell
from leakgauge.audit.engines.base import Computed, commit
from leakgauge.audit.engines.luggage import LARGE, Luggage
from leakgauge.audit.engines.visiting import visit
from leakgauge.audit.environment import environment
from leakgauge.audit.plan import plan
from leakgauge.audit.store import Store
from leakgauge.cli import app
from leakgauge.errors import DomainError, LeakgaugeError
from leakgauge.study import Study
from leakgauge.types import Domain, Records

SPEC = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=4, depth=1)"
records = 8
[checkpoints]
train_steps = [1]
[defenses]
none = "identity()"
[adversaries]
linear = ["analytic()", "dlg(steps=1)"]
"""


def test_large_tensors_travel_apart() -> None:
    large, small = torch.arange(LARGE // 4 + 1.0).unsqueeze(0), torch.arange(3.0)
    weight = torch.nn.Parameter(torch.zeros(LARGE))
    records = Records(large, torch.zeros(1, dtype=torch.long), Domain("table", large.shape[1:], 3))
    luggage = Luggage.of({"a": records, "b": [large, small], "w": weight, "buffer": torch.zeros(LARGE)})
    assert len(luggage.arrays) == 1  # weights and buffers may be written to
    for array in luggage.arrays:
        array.flags.writeable = False  # as a node's object store gives them
    value = luggage.value()
    assert torch.equal(value["a"].inputs, large)
    assert value["a"].inputs.data_ptr() == value["b"][0].data_ptr() == luggage.arrays[0].ctypes.data
    assert torch.equal(value["b"][1], small)
    assert isinstance(value["w"], torch.nn.Parameter)
    value["buffer"].add_(1)
    half = Luggage.of({"x": large, "half": large.bfloat16().repeat(1, 2)}, everything=True)
    assert len(half.arrays) == 1  # numpy has no bfloat16
    assert half.value()["half"].dtype == torch.bfloat16


def test_what_workers_send_back_is_what_the_local_engine_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell of a plan with training and tuning, visited as a worker does it, without a run folder."""
    import pickle

    from safetensors.torch import load

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    (tmp_path / "spec.toml").write_text(SPEC)
    study = Study.load(tmp_path / "spec.toml")
    audit(study, tmp_path / "local", engine=InProcess())
    store, luggage = Store(tmp_path / "remote"), Luggage.of(study)
    for array in luggage.arrays:
        array.flags.writeable = False
    kinds = set()
    for cell in plan(study).cells:
        kinds.add(cell.kind)
        parents = [
            (store.result(p), Luggage.of(store.tensors(p), everything=True) if "tensors" in store.result(p) else None)
            for p in cell.parents
        ]
        answer = visit("key", luggage, pickle.dumps(cell), cell.parents, environment(), False, *parents)
        assert answer.result is not None, answer.trace
        outcome = (answer.result, load(answer.tensors) if answer.tensors else {})
        for _ in range(2):  # a cell that is sent twice changes nothing
            assert commit(cell, Computed(outcome, answer.seconds), store) is None
    assert kinds == {"train", "tune", "attack"}
    files = {path.name: path.read_bytes() for path in (tmp_path / "local" / "cells").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "remote" / "cells").iterdir()}


def test_nodes_that_compute_otherwise_or_are_open_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    other = environment() | {"arithmetic": "another"}
    assert (
        "a node computes otherwise (arithmetic another" in visit("k", Luggage(b"", ()), b"", (), other, False).refused
    )
    for mode in ("disabled", None):
        monkeypatch.delenv("RAY_AUTH_MODE") if mode is None else monkeypatch.setenv("RAY_AUTH_MODE", mode)
        refused = visit("k", Luggage(b"", ()), b"", (), environment(), False).refused
        assert "without RAY_AUTH_MODE=token" in refused


def test_no_cluster_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    study = Study.load(tmp_path / "spec.toml")
    cells = [cell for cell in plan(study).cells if isinstance(cell, TrainCell)]
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(LeakgaugeError, match="RAY_AUTH_MODE is 'disabled'; start every node with RAY_AUTH_MODE=token"):
        list(RayCluster("127.0.0.1:1").run(study, cells, Store(tmp_path)))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LeakgaugeError, match="there is no token of the cluster"):
        list(RayCluster("127.0.0.1:1").run(study, cells, Store(tmp_path)))
    with pytest.raises(DomainError, match="ahead"):
        RayCluster("127.0.0.1:1", ahead=0)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--engine", "ray"], "--engine ray without --address"),
        (["--address", "x:1"], "--address with --engine local"),
        (["--engine", "ray", "--address", "x:1", "--workers", "2"], "--workers 2 with --engine ray"),
    ],
)
def test_words_that_do_not_go_together(tmp_path: Path, words: list[str], what: str) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    ended = CliRunner().invoke(app, ["audit", str(tmp_path / "spec.toml"), *words])
    assert ended.exit_code == 2
    assert what in ended.output


def _namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'leakgauge[ray]'"
)
@pytest.mark.skipif(not _namespaces(), reason="no network namespaces here (unshare -rn)")
def test_a_real_cluster(tmp_path: Path) -> None:
    from evidence.ray_cluster import in_a_namespace

    answers = in_a_namespace(tmp_path)
    assert answers["only loopback"]
    assert answers["undisturbed differs"] == 0
    assert answers["driver differs"] == 0
    assert 0 < answers["driver killed at"] < answers["cells"]
    assert answers["nodes differs"] == 0
    assert (answers["workers killed"], answers["nodes killed"]) == (1, 1)
    assert answers["quarantine code"] == 1
    assert answers["quarantined"] >= 1
    assert answers["beside it"] >= 1
    assert answers["left over"] == 0
    assert [answers[f"{name} code"] for name in ("local", "undisturbed", "driver", "nodes")] == [0] * 4
