"""FedAvg on Flower's simulation equals FedAvg in this process; Ray runs in a network namespace."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from evidence.checks.simulation import SEED, federation, isolated, simulated
from leakgauge.errors import DomainError, LeakgaugeError, MissingExtraError
from leakgauge.fl import Federation, InProcess, Totals, federate
from leakgauge.fl.federate import Run
from leakgauge.integrations.flower.simulation import LATE, _client, _server, simulate, started


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["I", "II"])
def test_flowers_simulation_gives_the_same_weights(scheme: str) -> None:
    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("ray") is None:
        pytest.skip("needs flwr[simulation]")
    if not isolated():
        pytest.skip("needs a network namespace (unshare -rn): Ray listens on all interfaces")
    off, moved = simulated(scheme)
    assert off <= 1e-5
    assert moved > 1e-2


class Wire:
    """Flower's messages, handed from its strategy to its app in this process."""

    def __init__(self, app: Any, clients: int) -> None:
        from flwr.app import Context, RecordDict

        self.app = app
        self.contexts = {
            2 + k: Context(1, 2 + k, node_config={"partition-id": k}, state=RecordDict(), run_config={})
            for k in range(clients)
        }

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        return [self.app(message, self.contexts[message.metadata.dst_node_id]) for message in messages]


@pytest.mark.parametrize("scheme", ["I", "II"])
def test_flowers_strategy_and_app_give_the_same_weights(scheme: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("flwr.serverapp.strategy", reason="needs leakgauge[flower]")
        from flwr.supercore.task_identity import TaskIdentity
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    task, clients, how = federation(scheme)
    weights: dict[str, torch.Tensor] = {}
    server = _server(task, how, len(clients), weights)
    server(Wire(_client(Run(task, clients, how, Totals.in_clear(clients), InProcess(), SEED)), len(clients)), None)
    here = federate(task, clients, how, seed=SEED).state
    assert max(float((here[n] - weights[n]).abs().max()) for n in task.params) <= 1e-5
    assert max(float((here[n] - p).abs().max()) for n, p in task.params.items()) > 1e-2


def test_ray_is_started_again_when_its_processes_are_late() -> None:
    attempts: list[str] = []

    def late(times: int) -> None:
        attempts.append("start")
        if len(attempts) <= times:
            raise Exception(f"The current node {LATE}.")

    started(lambda: late(2))
    assert len(attempts) == 3
    attempts.clear()
    with pytest.raises(LeakgaugeError, match="less busy"):
        started(lambda: late(9))
    with pytest.raises(ZeroDivisionError):
        started(lambda: 1 / 0)


def test_what_flower_cannot_do_alike_is_refused() -> None:
    task, clients, _ = federation("II")
    for how in (Federation(rounds=1, steps=1, per_round=2), Federation(rounds=1, steps=1, secure=True)):
        with pytest.raises(DomainError, match="federate"):
            simulate(task, clients, how)


def test_without_flower_the_extra_is_named() -> None:
    if importlib.util.find_spec("ray") is not None and importlib.util.find_spec("flwr") is not None:
        pytest.skip("flwr[simulation] is installed")
    task, clients, how = federation("II")
    with pytest.raises(MissingExtraError, match="pip install"):
        simulate(task, clients, how)
