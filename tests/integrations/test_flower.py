"""Flower's mods with real messages and contexts, neither Ray nor a server; one slow run of a real federation."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leakgauge.attacks import analytic
from leakgauge.errors import DomainError, LeakgaugeError, MissingExtraError
from leakgauge.inspect import folder_of, inspect
from leakgauge.integrations.defending import private_generator
from leakgauge.integrations.exchange import WITHHELD, Exchange
from leakgauge.integrations.flower import Capture, Defend, Gate, captured, wrap
from leakgauge.integrations.flower.node import HOOK, mods_of
from leakgauge.storage.states import read_state
from leakgauge.types import Domain, Records

RUN, NODE = 11, 2**63 + 7
DOMAIN = Domain("image", (1, 6, 6), 4)


def flower() -> Any:
    """Flower's public names; without it the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it imports a click that warns
        app = pytest.importorskip("flwr.app", reason="needs leakgauge[flower]")
        pytest.importorskip("flwr.clientapp", reason="needs leakgauge[flower]")
    return app


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


def own_records(context: object = None) -> Records:
    inputs = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    return Records(inputs, torch.tensor([2]), DOMAIN)


def context() -> Any:
    app = flower()
    return app.Context(run_id=RUN, node_id=NODE, node_config={}, state=app.RecordDict(), run_config={})


def message(weights: Mapping[str, Tensor], kind: str = "train", round: int | None = 1, key: str = "arrays") -> Any:
    app = flower()
    from flwr.app.metadata import Metadata

    record = app.ArrayRecord({name: app.Array(value.numpy()) for name, value in weights.items()})
    config = app.ConfigRecord({} if round is None else {"server-round": round})
    metadata = Metadata(
        run_id=RUN, message_id="m1", src_node_id=1, dst_node_id=NODE, reply_to_message_id="", group_id="",
        created_at=time.time(), ttl=3600.0, message_type=kind,
    )  # fmt: skip
    return app.Message(content=app.RecordDict({key: record, "config": config}), metadata=metadata)


def training(model: nn.Module | None = None, rate: float = 0.1) -> Callable[[Any, Any], Any]:
    """A stock app's train function: one step on the client's own record."""
    model = model or build()

    def train(msg: Any, ctx: Any) -> Any:
        app = flower()
        model.load_state_dict({n: torch.from_numpy(a.numpy()) for n, a in msg.content["arrays"].items()})
        records = own_records()
        model.zero_grad()
        nn.functional.cross_entropy(model(records.inputs), records.labels).backward()
        torch.optim.SGD(model.parameters(), lr=rate).step()
        content = app.RecordDict(
            {"arrays": app.ArrayRecord(model.state_dict()), "metrics": app.MetricRecord({"num-examples": 1})}
        )
        return app.Message(content=content, reply_to=msg)

    return train


def sent(reply: Any) -> dict[str, np.ndarray[Any, Any]]:
    (record,) = reply.content.array_records.values()
    return {name: array.numpy() for name, array in record.items()}


def test_a_capture_is_private_and_gives_the_record_back(tmp_path: Path) -> None:
    folder, start = tmp_path / "captures", build().state_dict()
    reply = Capture(str(folder))(message(start), context(), training())
    (path,) = folder.rglob("*client*")
    state = read_state(path)
    assert path.parent.relative_to(folder) == Path(f"run-{RUN}", f"node-{NODE}")
    facts = {name: state.fact(name) for name in ("round", "client", "examples", "sign", "buffers")}
    assert facts == {"round": 1, "client": NODE, "examples": 1, "sign": 1, "buffers": []}
    for name, value in sent(reply).items():  # what is written is what leaves, to the bit
        assert np.array_equal(state.tensors[name].numpy(), value)
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in folder.rglob("*.safetensors"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    captures = folder_of(folder, build())
    (finding,) = inspect(build(), DOMAIN, captures, known=own_records(), attacks=[analytic()], draws=3)
    assert finding.psnr[0] > 20


def test_a_capture_passes_on_what_is_not_training(tmp_path: Path) -> None:
    evaluated = message(build().state_dict(), "evaluate")
    reply = object()
    assert Capture(str(tmp_path))(evaluated, context(), lambda m, c: reply) is reply  # type: ignore[arg-type,return-value]
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_full_folder_stops_the_capture_not_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reply = Capture(str(tmp_path), limit=100)(message(build().state_dict()), context(), training())
    assert not reply.has_error()
    assert "is full" in caplog.text
    assert not list(tmp_path.rglob("*.safetensors"))


def test_rounds_that_are_not_stated_are_counted_and_runs_stay_apart(tmp_path: Path) -> None:
    weights = {name: value.clone() for name, value in build().state_dict().items()}
    for _ in range(2):
        reply = Capture(str(tmp_path))(message(weights, round=None), context(), training())
        weights = {name: torch.from_numpy(value) for name, value in sent(reply).items()}
    other = context()
    app = flower()
    other = app.Context(run_id=RUN + 1, node_id=NODE, node_config={}, state=app.RecordDict(), run_config={})
    Capture(str(tmp_path))(message(weights, round=1), other, training())
    captures = {capture.name: capture for capture in folder_of(tmp_path, build())}
    assert sorted(capture.round or "" for capture in captures.values()) == ["1", "1", "2"]
    for name, capture in captures.items():  # each from the start of its own run
        assert capture.before.path.parent == tmp_path / Path(name).parent


def test_old_clients_number_their_arrays(tmp_path: Path) -> None:
    app, model = flower(), build()
    numbered = {str(i): value for i, value in enumerate(model.state_dict().values())}

    def fit(msg: Any, ctx: Any) -> Any:
        named = dict(zip(model.state_dict(), (torch.from_numpy(v) for v in sent(msg).values()), strict=True))
        reply = training(model)(message(named), ctx)
        arrays = app.ArrayRecord({str(i): app.Array(v) for i, v in enumerate(sent(reply).values())})
        content = {"fitres.parameters": arrays, "fitres.num_examples": app.MetricRecord({"num_examples": 1})}
        return app.Message(content=app.RecordDict(content), reply_to=msg)

    Capture(str(tmp_path))(message(numbered, key="fitins.parameters"), context(), fit)
    (capture,) = folder_of(tmp_path, build())
    assert list(capture.gradient) == list(model.state_dict())
    (finding,) = inspect(build(), DOMAIN, [capture], known=own_records(), attacks=[analytic()], draws=3)
    assert finding.psnr[0] > 20


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(LeakgaugeError, match="absolute"):
        Capture("captures")


def test_the_folder_may_be_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CAPTURE", str(tmp_path))
    Capture()(message(build().state_dict()), context(), training())
    assert len(list(tmp_path.rglob("*client[0-9]*.safetensors"))) == 1


def test_without_a_folder_training_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("LEAKGAUGE_CAPTURE", raising=False)
    assert not Capture()(message(build().state_dict()), context(), training()).has_error()
    assert "LEAKGAUGE_CAPTURE" in caplog.text


def test_defend_clips_the_change_and_keeps_names_shapes_and_types() -> None:
    start = build().state_dict()
    plain = training()(message(start), context())
    reply = Defend("clip(norm=0.001)")(message(start), context(), training())
    changes = [{name: value - start[name].numpy() for name, value in sent(one).items()} for one in (plain, reply)]
    sizes = [
        float(np.sqrt(sum(float((c.astype(np.float64) ** 2).sum()) for c in change.values()))) for change in changes
    ]
    entries = sum(value.numel() for value in start.values())
    largest = max(float(value.abs().max()) for value in start.values())
    rounding = float(np.finfo(np.float32).eps) * largest * entries**0.5
    assert sizes[0] > 0.01
    assert sizes[1] == pytest.approx(0.001, abs=2 * rounding)
    assert [(n, v.shape, v.dtype) for n, v in sent(reply).items()] == [
        (n, tuple(v.shape), v.numpy().dtype) for n, v in start.items()
    ]
    assert dict(reply.content.metric_records) == dict(plain.content.metric_records)


def test_noise_does_not_follow_the_seed_of_the_app() -> None:
    start = build().state_dict()
    replies = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        replies.append(sent(Defend("gaussian(std=1.0)")(message(start), context(), training())))
    differences = np.concatenate([(replies[0][n] - replies[1][n]).ravel() for n in start])
    # of variance 2 with 496 entries; six deviations of the sample variance, 2·sqrt(2/496)
    assert abs(differences.var() - 2) < 6 * 2 * (2 / differences.size) ** 0.5


def test_the_whole_state_of_the_generator_is_private() -> None:
    draws = torch.stack([torch.randn(1000, generator=private_generator()) for _ in range(4)])
    assert len({tuple(row.tolist()) for row in draws}) == 4
    # the state is 624 words of 32 bits, none of them that of a seed of 32 bits
    fresh = torch.Generator().manual_seed(0).get_state()[24 : 24 + 8 * 624].numpy().view("<u8")
    words = private_generator().get_state()[24 : 24 + 8 * 624].numpy().view("<u8")
    assert (words < 2**32).all()
    assert (words != fresh).mean() > 0.99
    # four times 1000 normal numbers: mean and variance within six deviations
    assert abs(float(draws.mean())) < 6 / 4000**0.5
    assert abs(float(draws.var()) - 1) < 6 * (2 / 4000) ** 0.5


def test_running_statistics_stay_at_home_unless_they_are_to_be_sent() -> None:
    before = {
        "0.weight": np.zeros(3, np.float32),
        "1.running_mean": np.zeros(2, np.float32),
        "1.num_batches_tracked": np.array(4),
    }
    after = {name: value + 1 for name, value in before.items()}
    both = Exchange(before, {n: np.asarray(v, before[n].dtype) for n, v in after.items()})
    assert set(both.buffers) == {"1.running_mean", "1.num_batches_tracked"}
    home, out = Defend("clip(norm=100.0)").released(both), Defend("clip(norm=100.0)", buffers="send").released(both)
    assert home["1.num_batches_tracked"] == 4
    assert not home["1.running_mean"].any()
    assert out["1.num_batches_tracked"] == 5
    assert (out["1.running_mean"] == 1).all()
    assert (home["0.weight"] == 1).all()


@pytest.mark.parametrize("needs", ["clip(norm=1.0, per='example')", "soteria(layer='1')", "mixup(k=2)", "lrp()"])
def test_parts_that_need_more_than_the_update_are_refused_at_once(needs: str) -> None:
    with pytest.raises(DomainError, match="update alone"):
        Defend(needs)


@pytest.mark.parametrize("mod", [Defend("gaussian(std=1.0)"), Gate(build, own_records)], ids=["defend", "gate"])
def test_what_cannot_be_judged_is_withheld_with_a_neutral_text(mod: Any) -> None:
    app, start = flower(), build().state_dict()

    def diverged(msg: Any, ctx: Any) -> Any:
        reply = training()(msg, ctx)
        reply.content["arrays"] = app.ArrayRecord({n: app.Array(v * np.float32("nan")) for n, v in sent(reply).items()})
        return reply

    def two(msg: Any, ctx: Any) -> Any:
        reply = training()(msg, ctx)
        reply.content["control"] = reply.content["arrays"]
        return reply

    for fault in (diverged, two):
        reply = mod(message(start), context(), fault)
        assert reply.has_error()
        assert reply.error.reason == WITHHELD
        assert reply.metadata.dst_node_id == 1
    assert mod(message(start, "query"), context(), training()).has_error()  # arrays leave in train replies only


def test_a_gate_blocks_an_exact_leak_and_passes_strong_noise(caplog: pytest.LogCaptureFixture) -> None:
    start, gate = build().state_dict(), Gate(build, own_records)
    blocked = gate(message(start), context(), training())
    assert blocked.has_error()
    assert blocked.error.reason == WITHHELD
    assert "1 of 1 records are recovered exactly" in caplog.text
    noise = Defend("gaussian(std=1.0)")
    passed = gate(message(start), context(), lambda m, c: noise(m, c, training()))
    assert not passed.has_error()
    assert set(sent(passed)) == set(start)


def test_a_gate_blocks_when_its_budget_runs_out_or_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    start, noise = build().state_dict(), Defend("gaussian(std=1.0)")

    def defended(msg: Any, ctx: Any) -> Any:
        return noise(msg, ctx, training())

    assert Gate(build, own_records, budget=10)(message(start), context(), defended).has_error()
    assert "do not suffice" in caplog.text

    def no_records(ctx: Any) -> Records:
        raise OSError("patient-17.dcm is missing")

    reply = Gate(build, no_records)(message(start), context(), defended)
    assert reply.error.reason == WITHHELD
    assert "patient-17" in caplog.text  # here, not at the server
    assert not Gate(build, own_records, action="warn")(message(start), context(), training()).has_error()
    assert "would withhold" in caplog.text


def test_a_strategy_captures_what_its_clients_sent_to_the_bit(tmp_path: Path) -> None:
    app = flower()
    from flwr.serverapp.strategy import FedAvg

    start = build().state_dict()
    asked = message(start)

    class Once(FedAvg):  # type: ignore[misc]
        def configure_train(self, *_: Any) -> list[Any]:
            return [asked]  # FedAvg's own needs a running server for the identity of its messages

    strategy = captured(Once(), str(tmp_path / "server"))
    (asked_for,) = strategy.configure_train(1, asked.content["arrays"], app.ConfigRecord(), None)
    reply = Capture(str(tmp_path / "client"))(asked_for, context(), training())
    arrays, _ = strategy.aggregate_train(1, [reply])
    assert arrays is not None
    (server,), (client,) = ([*(tmp_path / side).rglob("*client[0-9]*.safetensors")] for side in ("server", "client"))
    there, here = read_state(server), read_state(client)
    assert there.metadata == here.metadata
    assert all(torch.equal(there.tensors[name], value) for name, value in here.tensors.items())
    for name, value in sent(reply).items():  # the mean of one client
        assert np.allclose(arrays[name].numpy(), value, rtol=1e-6)


def test_an_app_without_mods_is_wrapped_by_its_node(tmp_path: Path) -> None:
    flower()
    from flwr.clientapp import ClientApp

    class Own(ClientApp):  # type: ignore[misc]
        """An app of this test: the wrapper changes the class."""

    app = Own()
    app.train()(training())
    wrap(Own, {"LEAKGAUGE_CAPTURE": str(tmp_path)})
    wrap(Own, {"LEAKGAUGE_DEFEND": "nonsense"})  # once is enough
    assert not app(message(build().state_dict()), context()).has_error()
    assert len(list(tmp_path.rglob("*client[0-9]*.safetensors"))) == 1


def test_a_node_whose_settings_are_wrong_runs_no_app() -> None:
    flower()
    from flwr.clientapp import ClientApp

    class Own(ClientApp):  # type: ignore[misc]
        pass

    app = Own()
    app.train()(training())
    wrap(Own, {"LEAKGAUGE_DEFEND": "gausian(std=1.0)"})
    assert app(message(build().state_dict()), context()).error.reason == WITHHELD


def test_an_own_mod_that_raises_keeps_its_words_on_the_node(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    flower()
    from flwr.clientapp import ClientApp

    def policy(msg: Any, ctx: Any, call_next: Any) -> Any:
        call_next(msg, ctx)
        raise ValueError("patient 17 comes out at 31 dB")

    module, policy.__module__ = types.ModuleType("a_site"), "a_site"
    module.policy = policy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_site", module)

    class Own(ClientApp):  # type: ignore[misc]
        pass

    app, start = Own(), build().state_dict()
    wrap(Own, {"LEAKGAUGE_GATE": "a_site:policy"})
    app.train()(training())
    assert app(message(start), context()).error.reason == WITHHELD
    assert "patient 17" in caplog.text

    def broken(msg: Any, ctx: Any) -> Any:
        raise KeyError("the app's own fault")

    other = Own()
    other.train()(broken)
    with pytest.raises(KeyError):  # is Flower's business, as without the node's mods
        other(message(start), context())


def test_settings_name_mods_outermost_first(tmp_path: Path) -> None:
    mods = mods_of({"LEAKGAUGE_CAPTURE": str(tmp_path), "LEAKGAUGE_DEFEND": "gaussian(std=1.0)"})
    assert [type(mod) for mod in mods] == [Capture, Defend]
    assert mods_of({}) == []


def test_the_hook_wraps_flower_on_import(tmp_path: Path) -> None:
    flower()
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import sys; sys.was_run = True\n")
    path = os.pathsep.join([str(HOOK), str(tmp_path), *filter(None, sys.path)])
    code = "import sys; from flwr.clientapp import ClientApp; print(ClientApp.__call__.leakgauge, sys.was_run)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]


def test_without_flower_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "flwr.serverapp.strategy", None)
    with pytest.raises(MissingExtraError, match=r"leakgauge\[flower\]"):
        captured(None, str(tmp_path))  # type: ignore[arg-type]
