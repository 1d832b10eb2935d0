"""A running Flower federation: what is captured, recovered, and withheld. Needs leakgauge[flower]."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from evidence import Context, Measurement, Number, above, below, check, exactly
from leakgauge.inspect import folder_of, inspect
from leakgauge.integrations.exposing import read_off
from leakgauge.integrations.flower import Capture, Defend, Gate
from leakgauge.integrations.flower.node import HOOK
from leakgauge.storage.states import read_state
from leakgauge.task import Task
from leakgauge.types import Domain, Records

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower"
USES = ("examples/flower/federation.py", "examples/flower/clinic/client_app.py", "examples/flower/clinic/task.py")
DOMAIN = Domain("image", (1, 28, 28), 10)
STRATEGY = "strategy = FedAvg(fraction_evaluate=0.0)"
IMPORT = "from clinic.task import build\n"
Way = Literal["app", "node"]


@dataclass(frozen=True)
class Federated:
    """One round of the example: captures of both sides, and the PSNR of each client's record."""

    captured: int
    equal: int
    psnr: tuple[float, ...]
    seconds: float


def module_at(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def known(task: Any, clients: int = 2) -> Records:
    inputs, labels = (torch.cat(both) for both in zip(*map(task.records_of, range(clients)), strict=True))
    return Records(inputs, labels, DOMAIN)


def federated(way: Way, folder: Path, rounds: int = 1) -> Federated:
    """Run the example on a SuperLink and two SuperNodes, captured by the app's mod or by the node's wrapper alone."""
    app, server, clients = folder / "app", folder / "server", folder / "clients"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    node = {"LEAKGAUGE_CAPTURE": str(clients), "PYTHONPATH": path}
    if way == "node":  # the app knows nothing of leakgauge; the operator of the node does
        _edit(app / "clinic" / "client_app.py", "mods=[Capture()]", "mods=[]")
        node["PYTHONPATH"] = os.pathsep.join([str(HOOK), path])
    at_server = app / "clinic" / "server_app.py"
    _edit(at_server, STRATEGY, f"{STRATEGY}\n    strategy = captured(strategy, {str(server)!r})")
    _edit(at_server, IMPORT, f"{IMPORT}from leakgauge.integrations.flower import captured\n")
    began = time.monotonic()
    run = module_at("federation", EXAMPLE / "federation.py").run
    run(app, folder / "home", server={"PYTHONPATH": path}, node=node, rounds=rounds)
    seconds = time.monotonic() - began
    there, here = (
        {file.name: read_state(file) for file in side.rglob("*client[0-9]*.safetensors")} for side in (server, clients)
    )
    equal = [
        name in there
        and state.metadata == there[name].metadata
        and all(torch.equal(value, there[name].tensors[key]) for key, value in state.tensors.items())
        for name, state in here.items()
    ]
    task = module_at("clinic_task", EXAMPLE / "clinic" / "task.py")
    findings = inspect(task.build(), DOMAIN, folder_of(clients, task.build()), known=known(task), draws=3)
    psnr = tuple(max(column) for column in zip(*(finding.psnr for finding in findings), strict=True))
    return Federated(len(here), sum(equal), psnr, seconds)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise ValueError(f"{path.name} has no {old!r}")
    path.write_text(text.replace(old, new))


@check("flower_federation", rows="flower", cost="minutes", uses=USES)
def flower_federation(context: Context) -> Measurement:
    """One round of the example on a real SuperLink with two SuperNodes: by the app's mod, and by the node's wrapper."""
    numbers = {}
    ways: tuple[Way, ...] = ("app", "node")
    for way in ways:
        with tempfile.TemporaryDirectory() as folder:
            one = federated(way, Path(folder))
        context.say(f"{way}: {one}")
        numbers[f"{way}: clients captured"] = Number(one.captured, exactly(2))
        numbers[f"{way}: equal at the server, to the bit"] = Number(one.equal, exactly(2))
        numbers[f"{way}: least PSNR dB"] = Number(min(one.psnr), above(20))
    return Measurement(numbers, detail="2 clients, batch 1, one step; the node's app has mods=[]")


def _message(weights: dict[str, torch.Tensor]) -> Any:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.app.metadata import Metadata

    arrays = ArrayRecord({name: Array(value.numpy()) for name, value in weights.items()})
    metadata = Metadata(
        run_id=1, message_id="m1", src_node_id=1, dst_node_id=7, reply_to_message_id="", group_id="",
        created_at=time.time(), ttl=3600.0, message_type="train",
    )  # fmt: skip
    config = ConfigRecord({"server-round": 1})
    return Message(content=RecordDict({"arrays": arrays, "config": config}), metadata=metadata)


def _context() -> Any:
    from flwr.app import Context as FlowerContext
    from flwr.app import RecordDict

    return FlowerContext(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})


def _client(task: Any, model: nn.Module, client: int) -> Callable[[Any, Any], Any]:
    def train(message: Any, context: Any) -> Any:
        from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        task.train(model, *task.records_of(client), 0.1)
        metrics = MetricRecord({"num-examples": 1})
        return Message(content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "m": metrics}), reply_to=message)

    return train


@check("flower_gate", rows="flower", cost="minutes", uses=USES)
def flower_gate(context: Context) -> Measurement:
    """The gate on ten clients of the example: undefended, strongly noised, without budget, and with a fault."""
    task = module_at("clinic_task", EXAMPLE / "clinic" / "task.py")
    noise = Defend("gaussian(std=1.0)")
    blocked = dict.fromkeys(("undefended", "noised", "no budget", "raises"), 0)

    def fails(_: Any) -> Records:
        raise OSError("no records")

    for client in range(10):
        torch.manual_seed(client)
        model = task.build()
        message, train = _message(model.state_dict()), _client(task, task.build(), client)

        def own(_: Any, client: int = client) -> Records:
            inputs, labels = task.records_of(client)
            return Records(inputs, labels, DOMAIN)

        def defended(m: Any, c: Any, train: Callable[[Any, Any], Any] = train) -> Any:
            return noise(m, c, train)

        cases = {
            "undefended": (Gate(task.build, own), train),
            "noised": (Gate(task.build, own), defended),
            "no budget": (Gate(task.build, own, budget=10), defended),
            "raises": (Gate(task.build, fails), defended),
        }
        for name, (gate, call) in cases.items():
            blocked[name] += gate(message, _context(), call).has_error()
        context.say(f"client {client}: {blocked}")
    bars = {"undefended": 10, "noised": 0, "no budget": 10, "raises": 10}
    return Measurement(
        {f"{name}: withheld of 10": Number(count, exactly(bars[name])) for name, count in blocked.items()},
        detail=f"one step on one image; the noise is {noise.protection} on the weight change",
    )


@check("flower_cost", rows="flower-cost", cost="minutes", uses=USES)
def flower_cost() -> Measurement:
    """The time that Capture and the exposure check add to a train message, beside a round of a real federation."""
    task = module_at("clinic_task", EXAMPLE / "clinic" / "task.py")
    model = task.build()
    message, train = _message(model.state_dict()), _client(task, task.build(), 0)
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(str(Path(folder) / "captures"))
        plain = _seconds(lambda: train(message, _context()))
        capturing = _seconds(lambda: capture(message, _context(), train)) - plain
        one, three = (federated("app", Path(folder) / str(rounds), rounds).seconds for rounds in (1, 3))
    sent = {name: torch.from_numpy(a.numpy()) for name, a in train(message, _context()).content["arrays"].items()}
    audited, own = Task(model, DOMAIN), known(task, 1)
    checking = _seconds(
        lambda: read_off(audited, {n: p - sent[n] for n, p in audited.params.items()}, own, threshold=14.0)
    )
    whole = (three - one) / 2
    return Measurement(
        {"share of a round": Number((capturing + checking) / whole, below(0.05))},
        detail=f"Capture adds {1000 * capturing:.1f} ms to a message, the exposure check {1000 * checking:.1f} ms (the "
        f"search for the layer included); a further round takes {whole:.1f} s, most of it the start of a process for "
        "every message",
    )


def _seconds(call: Callable[[], object], times: int = 20) -> float:
    call()  # warm
    began = time.monotonic()
    for _ in range(times):
        call()
    return (time.monotonic() - began) / times
