"""Federated training on Flower's own simulation engine (Ray beneath): the clients are leakgauge's one client function.

    state = simulate(task, clients, Federation(rounds=100, epochs=1, scheme="II"), cpus=8)

Ray listens on all interfaces and runs what it is sent. So its token authentication is switched on (``RAY_AUTH_MODE``),
and on a machine with neighbours it belongs into a network namespace: ``unshare -n``, with only loopback up.

Needs ``flwr[simulation]``.
"""

from __future__ import annotations

import copy
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import DomainError, LeakgaugeError, MissingExtraError
from leakgauge.fl import Federation, InProcess, Totals, work
from leakgauge.fl.federate import Run, check
from leakgauge.integrations.flower.messages import flwr_part, round_of
from leakgauge.task import Task
from leakgauge.types import Records

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

LATE = "timed out during startup"
"""What Ray says when one of its own processes was too slow."""


def simulate(
    task: Task,
    clients: Sequence[Records],
    how: Federation,
    *,
    seed: int = 0,
    totals: Totals | None = None,
    cpus: int = 1,
) -> dict[str, Tensor]:
    """The weights after federated training, as :func:`leakgauge.fl.federate` trains, but for rounding.

    Every client takes part in every round, since Flower draws clients by its own generator; secure sums and progress
    are federate's. One client runs on each of ``cpus`` at a time.
    """
    check(task, clients, how)
    guards.count(cpus, "cpus", "simulate")
    if how.secure or how.per_round not in (None, len(clients)):
        what = "secure sums" if how.secure else f"{how.per_round} of {len(clients)} clients a round"
        raise DomainError(f"{what} cannot be simulated here", where="simulate", remedy="use leakgauge.fl.federate")
    if totals is None:
        totals = Totals.secure(clients) if task.protection.training else Totals.in_clear(clients)
    run = Run(task, clients, how, totals, InProcess(), seed)
    finished: dict[str, Tensor] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated in favour of a command, which leaves daemons behind
        launch = _launcher()
        with _ray(cpus):
            launch(
                server_app=_server(task, how, len(clients), finished),
                client_app=_client(run),
                num_supernodes=len(clients),
                backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
            )
    if set(finished) != set(task.params):
        raise LeakgaugeError("ended without weights", where="simulate", remedy="look at Flower's log above")
    return {**copy.deepcopy(task.trained()).state_dict(), **finished}


def _launcher() -> Any:
    launch = flwr_part("flwr.simulation", "run_simulation")
    try:
        import ray  # type: ignore[import-not-found,unused-ignore] # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "the package ray is not installed", where="simulate", remedy="pip install 'flwr[simulation]'"
        ) from None
    return launch


@contextmanager
def _ray(cpus: int) -> Iterator[None]:
    """Ray, started before Flower: where it does not start, Flower's server would wait for its clients for ever."""
    import ray  # type: ignore[import-not-found,unused-ignore]

    if ray.is_initialized():  # the user's own, which stays
        yield
        return
    _environment()
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
    """Ray with authentication, unless the user has decided otherwise."""
    for name, value in {**QUIET, "RAY_AUTH_MODE": "token"}.items():
        os.environ.setdefault(name, value)
    if os.environ["RAY_AUTH_MODE"] == "token" and not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _client(run: Run) -> Any:
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator,unused-ignore]
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        params = {n: torch.from_numpy(a.numpy()) for n, a in message.content["arrays"].items()}
        change = work(run.job(k, int(round_of(message) or 1) - 1, params)).change
        weights = {n: (p.double() + change[n].double()).to(p) for n, p in params.items()}
        metrics = MetricRecord({"num-examples": run.examples(k)})
        arrays = ArrayRecord({n: Array(w.numpy()) for n, w in weights.items()})
        return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def _server(task: Task, how: Federation, clients: int, finished: dict[str, Tensor]) -> Any:
    from flwr.app import Array, ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    app, start = ServerApp(), {n: p.detach().clone() for n, p in task.params.items()}

    @app.main()  # type: ignore[untyped-decorator,unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        initial = ArrayRecord({n: Array(p.numpy()) for n, p in start.items()})
        arrays: Mapping[str, Any] = strategy.start(grid=grid, initial_arrays=initial, num_rounds=how.rounds).arrays
        finished.update({n: torch.from_numpy(array.numpy()).to(start[n]) for n, array in arrays.items() if n in start})

    return app
