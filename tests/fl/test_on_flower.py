"""FedAvg on Flower's simulation equals FedAvg in this process; Ray runs in a network namespace."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from evidence.checks.simulation import SCHEMES, SEED, federation, isolated, simulated
from leakgauge.errors import LeakgaugeError, MissingExtraError
from leakgauge.fl import Federation, FederationError, InProcess, federate
from leakgauge.fl.engine import Engine
from leakgauge.fl.federate import Run, totals_of
from leakgauge.fl.on_flower import LATE, Nodes, client_app, simulate, started
from leakgauge.task import Task
from leakgauge.types import Records


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_flowers_simulation_gives_the_same_weights(scheme: str) -> None:
    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("ray") is None:
        pytest.skip("needs flwr[simulation]")
    if not isolated():
        pytest.skip("needs a network namespace (unshare -rn): Ray listens on all interfaces")
    off, moved = simulated(scheme)
    assert off <= 1e-5
    assert moved > 1e-2


class Wire:
    """Flower's messages, handed from its server to its clients in this process; those in ``broken`` raise."""

    def __init__(self, app: Any, clients: int, broken: frozenset[int] = frozenset()) -> None:
        from flwr.app import Context, RecordDict

        self.app, self.broken = app, broken
        self.contexts = {
            2 + k: Context(1, 2 + k, node_config={"partition-id": k}, state=RecordDict(), run_config={})
            for k in range(clients)
        }

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        return [self._answer(message) for message in messages]

    def _answer(self, message: Any) -> Any:
        from flwr.app import Error, Message

        if int(message.content["config"]["client"]) in self.broken:
            return Message(Error(code=2, reason="it broke"), reply_to=message)
        return self.app(message, self.contexts[message.metadata.dst_node_id])


@pytest.fixture
def flower() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("flwr.serverapp", reason="needs leakgauge[flower]")
        from flwr.supercore.task_identity import TaskIdentity
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def wired(task: Task, clients: list[Records], how: Federation, broken: frozenset[int] = frozenset()) -> Engine:
    """Flower's grid as an engine, without Ray."""
    run = Run(task, clients, how, totals_of(task, clients, how), InProcess(), SEED)
    return Nodes(Wire(client_app(run), len(clients), broken), len(clients))


@pytest.mark.usefixtures("flower")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("defense", ["identity()", "ada_lrp() | clip(norm=0.5) | gaussian(std=0.01)"])
def test_flowers_messages_give_the_same_history(scheme: str, defense: str) -> None:
    task, clients, how = federation(scheme)
    task, test = task.protect(defense), clients[2]
    here = federate(task, clients, how, seed=SEED, test=test)
    there = federate(task, clients, how, seed=SEED, test=test, engine=wired(task, clients, how))
    assert max(float((here.state[n] - there.state[n]).abs().max()) for n in task.params) <= 1e-5
    assert max(float((here.state[n] - p).abs().max()) for n, p in task.params.items()) > 1e-2
    assert [log.clients for log in here.rounds] == [log.clients for log in there.rounds]
    assert list(there.accuracies) == list(here.accuracies)


@pytest.mark.usefixtures("flower")
def test_a_client_that_breaks_on_a_node_is_lost_in_its_round() -> None:
    task, clients, how = federation("I")
    engine = wired(task, clients, how, frozenset({1}))
    history = federate(task, clients, how, seed=SEED, engine=engine)
    assert [[lost.client for lost in log.lost] for log in history.rounds] == [[1]] * how.rounds
    with pytest.raises(FederationError, match="answered"):
        federate(task, clients, how, seed=SEED, engine=wired(task, clients, how, frozenset({0, 1, 2})))


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


def test_without_flower_the_extra_is_named() -> None:
    if importlib.util.find_spec("ray") is not None and importlib.util.find_spec("flwr") is not None:
        pytest.skip("flwr[simulation] is installed")
    task, clients, how = federation("II")
    with pytest.raises(MissingExtraError, match="pip install"):
        simulate(task, clients, how)
