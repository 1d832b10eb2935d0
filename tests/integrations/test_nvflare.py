"""NVFlare's filters with real DXO and Shareable objects; one slow run of the simulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from evidence.checks.claims import job
from leakgauge.errors import DomainError, LeakgaugeError, MissingExtraError
from leakgauge.inspect import folder_of, inspect
from leakgauge.storage.states import read_state
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 6, 6), 4)


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


def records(context: object = None) -> Records:
    inputs = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    return Records(inputs, torch.tensor([2]), DOMAIN)


def no_records(context: object = None) -> Records:
    raise OSError("no records")


def filters() -> Any:
    pytest.importorskip("nvflare", reason="needs leakgauge[nvflare]")
    import leakgauge.integrations.nvflare as package

    return package


def context() -> Any:
    filters()
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.fl_context import FLContext

    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False, sticky=False)
    return fl_ctx


def shareable(data: dict[str, Any], kind: str = "WEIGHTS", number: int | None = 1) -> Any:
    from nvflare.apis.dxo import DXO

    result = DXO(kind, data).to_shareable()
    if number is not None:
        result.set_header("current_round", number)
    return result


def trained(rate: float = 0.1) -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights of a round, and those after one step on the client's own record."""
    model, own = build(), records()
    before = {n: p.detach().clone() for n, p in model.state_dict().items()}
    nn.functional.cross_entropy(model(own.inputs), own.labels).backward()
    gradients = {n: p.grad for n, p in model.named_parameters()}
    return before, {n: w - rate * gradients[n] for n, w in before.items()}


def arrays(weights: dict[str, Any]) -> dict[str, Any]:
    return {n: w.numpy() for n, w in weights.items()}


def data_of(result: Any) -> dict[str, Any]:
    from nvflare.apis.dxo import from_shareable

    return dict(from_shareable(result).data)


@pytest.mark.parametrize("form", ["numpy", "torch", "difference"])
def test_a_capture_gives_the_record_back(form: str, tmp_path: Path) -> None:
    package, fl_ctx = filters(), context()
    before, after = trained()
    package.Remember().process(shareable(before if form == "torch" else arrays(before)), fl_ctx)
    sent, kind = after if form == "torch" else arrays(after), "WEIGHTS"
    if form == "difference":
        sent, kind = {n: w - before[n].numpy() for n, w in arrays(after).items()}, "WEIGHT_DIFF"
    result = shareable(sent, kind, number=None)
    assert package.Capture(str(tmp_path)).process(result, fl_ctx) is result
    (capture,) = folder_of(tmp_path, build())
    (finding,) = inspect(build(), DOMAIN, [capture], known=records(), draws=3)[:1]
    assert max(finding.psnr) > 20
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.safetensors")} == {0o600}


def test_a_second_run_of_the_same_name_stays_apart(tmp_path: Path) -> None:
    package, fl_ctx = filters(), context()
    before, after = map(arrays, trained())
    moved = {name: value + np.float32(0.5) for name, value in before.items()}
    for start in (before, moved, moved):  # the simulator calls every job alike; the last is one round twice
        package.Remember().process(shareable(start), fl_ctx)
        package.Capture(str(tmp_path)).process(shareable(after, number=None), fl_ctx)
    captures = folder_of(tmp_path, build())
    assert [bool(torch.equal(c.before.tensors["1.bias"], torch.from_numpy(before["1.bias"]))) for c in captures] == [
        True,
        False,
    ]


def test_a_capture_that_cannot_be_written_lets_the_result_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    package, fl_ctx = filters(), context()
    result = shareable(arrays(trained()[1]))
    assert package.Capture(str(tmp_path)).process(result, fl_ctx) is result  # nobody remembered the model
    assert "not written" in caplog.text


@pytest.mark.parametrize("kind", ["WEIGHTS", "WEIGHT_DIFF"])
def test_defend_clips_the_change_and_keeps_the_form(kind: str) -> None:
    package, fl_ctx = filters(), context()
    before, after = trained(rate=100.0)
    package.Remember().process(shareable(before), fl_ctx)
    sent = after if kind == "WEIGHTS" else {n: w - before[n] for n, w in after.items()}
    released = data_of(package.Defend("clip(norm=1.0)").process(shareable(sent, kind), fl_ctx))
    assert all(isinstance(value, torch.Tensor) for value in released.values())
    change = {n: v - before[n] for n, v in released.items()} if kind == "WEIGHTS" else released
    size = float(torch.cat([v.flatten() for v in change.values()]).norm())
    assert size == pytest.approx(1.0, rel=1e-4)  # float32 weights around 0.1: their rounding is 1e-8 an entry
    assert {n: v.dtype for n, v in released.items()} == {n: v.dtype for n, v in before.items()}


def test_parts_that_need_records_are_refused_at_once() -> None:
    with pytest.raises(DomainError, match="update alone"):
        filters().Defend("mixup(k=4)")


def blocked(used: Any, result: Any, fl_ctx: Any) -> str:
    from nvflare.apis.filter import ContentBlockedException

    with pytest.raises(ContentBlockedException) as error:
        used.process(result, fl_ctx)
    return str(error.value)


def test_what_cannot_be_judged_is_withheld_with_a_neutral_text() -> None:
    package = filters()
    before, after = trained()
    defend = package.Defend("clip(norm=1.0)")
    texts = {blocked(defend, shareable(after), context())}  # nobody remembered
    fl_ctx = context()
    package.Remember().process(shareable(before), fl_ctx)
    texts.add(blocked(defend, shareable({"other": np.zeros(2)}), fl_ctx))
    texts.add(blocked(defend, shareable({n: w * np.nan for n, w in after.items()}), fl_ctx))
    texts.add(blocked(defend, shareable({"a": "b"}, "ANALYTIC"), fl_ctx))
    texts.add(blocked(defend, shareable({"arrays": np.zeros(2)}, "METRICS"), fl_ctx))
    assert texts == {"the update was withheld by this client"}
    metrics = shareable({"accuracy": 0.5}, "METRICS")
    assert defend.process(metrics, fl_ctx) is metrics


def test_an_old_model_does_not_stand_in_for_this_rounds() -> None:
    package, fl_ctx = filters(), context()
    before, after = trained()
    package.Remember().process(shareable(before), fl_ctx)
    package.Remember().process(shareable({"x": 1.0}, "METRICS"), fl_ctx)
    blocked(package.Defend("clip(norm=1.0)"), shareable(after), fl_ctx)


def test_a_gate_stops_an_exact_leak_and_passes_strong_noise(caplog: pytest.LogCaptureFixture) -> None:
    package, fl_ctx = filters(), context()
    here = "tests.integrations.test_nvflare"
    gate = package.Gate(f"{here}:build", f"{here}:records")
    before, after = trained()
    package.Remember().process(shareable(before), fl_ctx)
    assert "withheld" in blocked(gate, shareable(after), fl_ctx)
    assert "recovered exactly" in caplog.text
    noisy = {n: w + torch.randn(w.shape, generator=torch.Generator().manual_seed(1)) for n, w in after.items()}
    result = shareable(noisy)
    assert gate.process(result, fl_ctx) is result
    for settings in ({"budget": 10}, {"records": f"{here}:no_records"}):
        arguments = {"model": f"{here}:build", "records": f"{here}:records", **settings}
        blocked(package.Gate(**arguments), shareable(noisy), fl_ctx)


def test_filters_are_json() -> None:
    package = filters()
    gate = package.Gate("a.b:build", "a.b:records", loss="squared_error()")
    names = ("model", "records", "threshold", "budget", "batch", "mode", "loss", "defense", "action")
    arguments = {name: getattr(gate, name) for name in names}
    assert json.loads(json.dumps(arguments)) == arguments
    with pytest.raises(LeakgaugeError, match="Gate"):
        package.Gate("a.b:build", "a.b:records", loss="squared_err()")


def test_without_nvflare_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvflare", None)
    monkeypatch.delitem(sys.modules, "leakgauge.integrations.nvflare", raising=False)
    with pytest.raises(MissingExtraError, match=r"leakgauge\[nvflare\]"):
        __import__("leakgauge.integrations.nvflare")


@pytest.mark.slow
def test_the_simulator_runs_the_example_and_its_records_come_back(tmp_path: Path) -> None:
    filters()
    run = job(tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    files = [read_state(p) for p in (tmp_path / "captures").rglob("*client*.safetensors")]
    assert {state.fact("client") for state in files} == {"site-1", "site-2"}


@pytest.mark.slow
def test_a_withheld_result_is_not_sent(tmp_path: Path) -> None:
    filters()
    run = job(tmp_path, "--gate")
    text = run.stdout + run.stderr
    assert run.returncode != 0  # every client must answer, and none does
    assert "TASK_RESULT_FILTER_ERROR" in text
    assert not list((tmp_path / "captures").rglob("*client*.safetensors"))  # the capture stands behind the gate
