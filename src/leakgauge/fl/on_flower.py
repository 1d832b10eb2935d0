"""Federated training on Flower's own simulation engine (Ray beneath): the rounds are :func:`leakgauge.fl.federate`'s,
the clients leakgauge's one client function, and Flower carries jobs and answers between them.

    history = simulate(task, clients, Federation(rounds=100, per_round=10, epochs=1), test=test, cpus=8)

Ray listens on all interfaces and runs what it is sent. So its token authentication is switched on (``RAY_AUTH_MODE``),
and on a machine with neighbours it belongs into a network namespace: ``unshare -n``, with only loopback up.

Needs ``flwr[simulation]``.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import LeakgaugeError, MissingExtraError
from leakgauge.fl.engine import InProcess, Job, Reply, work
from leakgauge.fl.federate import Federation, Run, check, federate, totals_of
from leakgauge.fl.history import History, Lost
from leakgauge.fl.sums import Totals
from leakgauge.task import Task
from leakgauge.types import Progress, Records, Tree

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

PATIENCE = 120
"""Seconds in which the nodes of a simulation must have arrived."""
LATE = "timed out during startup"
"""What Ray says when one of its own processes was too slow."""


def simulate(
    task: Task,
    clients: Sequence[Records],
    how: Federation,
    *,
    test: Records | None = None,
    every: int = 1,
    seed: int = 0,
    totals: Totals | None = None,
    cpus: int = 1,
    progress: Progress | None = None,
) -> History:
    """Train as :func:`leakgauge.fl.federate` does, with the same arguments and, but for rounding, the same history; one
    client runs on each of ``cpus`` at a time. A client whose process fails is lost in its round."""
    check(task, clients, how)
    guards.count(cpus, "cpus", "simulate")
    totals = totals or totals_of(task, clients, how)
    outcomes: list[History | BaseException] = []

    def train(grid: Any) -> None:
        """The server's part; what it raises reaches the caller, past Flower's own handling."""
        how_to: dict[str, Any] = {"test": test, "every": every, "seed": seed, "totals": totals, "progress": progress}
        try:
            outcomes.append(federate(task, clients, how, engine=Nodes(grid, len(clients)), **how_to))
        except Exception as fault:
            outcomes.append(fault)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated in favour of a command, which leaves daemons behind
        launch = _launcher()
        with _ray(cpus):
            launch(
                server_app=server_app(train),
                client_app=client_app(Run(task, clients, how, totals, InProcess(), seed)),
                num_supernodes=len(clients),
                backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
            )
    if not outcomes:
        raise LeakgaugeError("ended without weights", where="simulate", remedy="look at Flower's log above")
    if isinstance(outcomes[0], BaseException):
        raise outcomes[0]
    return outcomes[0]


def _launcher() -> Any:
    _environment()
    try:
        import ray  # type: ignore[import-not-found,unused-ignore] # noqa: F401
        from flwr.simulation import run_simulation
    except ImportError:
        raise MissingExtraError(
            "the packages flwr and ray are not installed, or too old",
            where="simulate",
            remedy="pip install 'flwr[simulation]>=1.41'",
        ) from None
    return run_simulation


@contextmanager
def _ray(cpus: int) -> Iterator[None]:
    """Ray, started before Flower: where it does not start, Flower's server would wait for its clients for ever."""
    import ray  # type: ignore[import-not-found,unused-ignore]

    if ray.is_initialized():  # the user's own, which stays
        yield
        return
    # workers inherit the environment, but not what this process added to its path
    path = {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    started(lambda: ray.init(num_cpus=cpus, include_dashboard=False, runtime_env={"env_vars": path}))
    try:
        yield
    finally:
        ray.shutdown()


def started(start: Callable[[], object], tries: int = 3) -> None:
    """Start Ray, again if need be: it gives its own processes a fixed time, too short for a cold disk or busy cores."""
    for left in reversed(range(tries)):
        try:
            start()
        except Exception as fault:  # Ray raises plain exceptions
            if LATE not in str(fault):
                raise
            if not left:
                raise LeakgaugeError(
                    f"Ray did not start in {tries} attempts: its own processes took too long",
                    where="simulate",
                    remedy="wait until the machine is less busy, or use leakgauge.fl.federate",
                ) from fault
        else:
            return


def _environment() -> None:
    """Ray with authentication, unless the user has decided otherwise; it reads these when it is first imported."""
    if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") is None:
        return
    for name, value in {**QUIET, "RAY_AUTH_MODE": "token"}.items():
        os.environ.setdefault(name, value)
    if os.environ["RAY_AUTH_MODE"] == "token" and not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def client_app(run: Run) -> Any:
    """A Flower app that does the job of whichever client a message names."""
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator,unused-ignore]
    def train(message: Message, context: Context) -> Message:
        config, params = message.content["config"], _tensors(message.content["arrays"])
        change = work(run.job(int(config["client"]), int(config["round"]), params)).change
        return Message(content=RecordDict({"arrays": _arrays(change)}), reply_to=message)

    return app


def server_app(train: Callable[[Any], None]) -> Any:
    """A Flower app whose server does ``train`` with the grid of nodes."""
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator,unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        train(grid)

    return app


@dataclass(frozen=True, eq=False)
class Nodes:
    """The engine of a federated training: the jobs of a round as messages to the nodes of a Flower grid."""

    grid: Any
    count: int

    def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
        from flwr.app import ConfigRecord, Message, MessageType, RecordDict

        arrays = _arrays(jobs[0].params)  # all clients of a round begin alike
        asked = dict(zip(self._nodes(), jobs, strict=False))
        messages = [
            Message(
                content=RecordDict(
                    {"arrays": arrays, "config": ConfigRecord({"client": job.client, "round": job.key[1]})}
                ),
                dst_node_id=node,
                message_type=MessageType.TRAIN,
            )
            for node, job in asked.items()
        ]
        for reply in self.grid.send_and_receive(messages):
            client = asked[reply.metadata.src_node_id].client
            if reply.has_error():
                yield Lost(client, f"Flower reports: {reply.error.reason}")
            else:
                yield Reply(client, _tensors(reply.content["arrays"]))

    def _nodes(self) -> list[int]:
        """The nodes of the grid, once all have arrived."""
        until = time.monotonic() + PATIENCE
        while len(nodes := sorted(self.grid.get_node_ids())) < self.count:
            if time.monotonic() > until:
                raise LeakgaugeError(
                    f"{len(nodes)} of {self.count} nodes have arrived after {PATIENCE} s",
                    where="simulate",
                    remedy="look at Flower's log above",
                )
            time.sleep(0.1)
        return nodes


def _arrays(tensors: Tree) -> Any:
    from flwr.app import Array, ArrayRecord

    return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in tensors.items()})


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array.numpy()) for name, array in arrays.items()}
