"""Probes of Flower's differential privacy: mods on real messages, strategies on real replies; no server, no Ray."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from leakgauge.claims.gaussian import classical_std
from leakgauge.claims.probes import Numbers, probe
from leakgauge.claims.probes.flower_messages import answering, arrays_in, context, message, record, reply

ENTRIES = 50_000
TOLERANCE = 6 / math.sqrt(2 * ENTRIES)
"""Six standard errors of a standard deviation that is measured on so many entries."""

CLIENTS, EXAMPLES, ROUNDS = 10, 1000, 30


def _mod(name: str, *settings: float) -> Any:
    from flwr.clientapp import mod

    part = getattr(mod, name)
    return part(*settings) if settings else part


def _local(*settings: float) -> Any:
    return _mod("LocalDpMod", *settings)


@probe("flwr")
def local_noise(norm: float, sensitivity: float, epsilon: float, delta: float) -> tuple[bool, Numbers]:
    """The noise that ``LocalDpMod`` adds; a fault if it is that of the classical formula, whatever ε."""
    before = {"w": np.zeros(ENTRIES)}
    after = {"w": np.full(ENTRIES, norm * 1e-9)}  # a zero update raises; the first entry is not measured
    sent = arrays_in(_local(norm, sensitivity, epsilon, delta)(message(before), context(), answering(after)))["w"]
    # relative to one entry: the mean of equal entries is rounded, and no noise must be 0
    std, formula = float(np.std(sent - sent[0])), classical_std(sensitivity, epsilon, delta)
    near = abs(std - formula) <= TOLERANCE * formula
    return near, {"std": formula if near else std * (1 - TOLERANCE)}


@probe("flwr")
def scalars_at_client(name: str = "LocalDpMod") -> tuple[bool, Numbers]:
    """Whether a 0-d parameter leaves a client mod as it came; ``norm`` is the update's norm under a clip of 1."""
    before = {"w": np.zeros(4), "scale": np.zeros(())}
    after = {"w": np.ones(4), "scale": np.full((), 50.0)}
    used = _local(1.0, 1.0, 1.0, 1e-5) if name == "LocalDpMod" else _mod(name)
    configs = {"config": {"server-round": 1, "clipping_norm": 1.0}}
    sent = arrays_in(used(message(before, configs=configs), context(), answering(after, num_examples=1)))
    left = float(sent["scale"])
    return left == 50.0, {"sent": left, "norm": float(math.hypot(left, float(np.linalg.norm(sent["w"]))))}


@probe("flwr")
def global_noise() -> tuple[bool, Numbers]:
    """Whether an app that seeds numpy decides the noise: two clients with one seed send the same noise."""
    before, after = {"w": np.zeros(100)}, {"w": np.full(100, 1e-9)}
    noise = []
    for _ in range(2):
        np.random.seed(12345)  # noqa: NPY002 - what apps do
        noise.append(arrays_in(_local(1.0, 1.0, 1.0, 1e-5)(message(before), context(), answering(after)))["w"])
    same = float(np.mean(noise[0] == noise[1]))
    return same == 1.0, {"equal entries": same}


@probe("flwr")
def evaluation(name: str) -> tuple[bool, Numbers]:
    """Whether a mod that is registered for the whole app lets an evaluation fail."""
    used = _local(1.0, 1.0, 1.0, 1e-5) if name == "LocalDpMod" else _mod(name)
    try:
        answer = used(message({"w": np.zeros(4)}, kind="evaluate"), context(), answering(None, num_examples=1))
    except Exception:  # Flower sends an error in its place
        return True, {"failed": 1.0}
    return bool(answer.has_error()), {"failed": float(answer.has_error())}


def _strategy(name: str, **settings: Any) -> Any:
    from flwr.serverapp import strategy

    class Plain(strategy.FedAvg):  # type: ignore[misc]
        """FedAvg that asks no grid for clients."""

        def configure_train(self, *_: Any) -> Iterable[Any]:
            return []

    return getattr(strategy, name)(Plain(fraction_evaluate=1.0), **settings)


def _aggregated(strategy: Any, before: dict[str, Any], replies: list[tuple[dict[str, Any], int]]) -> dict[str, Any]:
    from flwr.app import ConfigRecord

    strategy.configure_train(1, record(before), ConfigRecord({}), None)
    answers = [
        reply(message(before, node=node), arrays, num_examples=examples)
        for node, (arrays, examples) in enumerate(replies, start=2)
    ]
    arrays, _ = strategy.aggregate_train(1, answers)
    return {name: array.numpy() for name, array in arrays.items()}


@probe("flwr")
def weighted_noise() -> tuple[bool, Numbers]:
    """How far one client with many examples moves the mean, in units of the ``C/n`` for which noise is set."""
    server = _strategy(
        "DifferentialPrivacyServerSideFixedClipping",
        noise_multiplier=0.0,
        clipping_norm=1.0,
        num_sampled_clients=CLIENTS,
    )
    before, still, moved = ({"w": np.array([x, 0.0])} for x in (0.0, 1e-9, 1.0))
    after = _aggregated(server, before, [(moved, EXAMPLES), *[(still, 1)] * (CLIENTS - 1)])
    factor = float(np.linalg.norm(after["w"])) * CLIENTS
    return factor > 1.01, {"factor": factor, "clients": CLIENTS, "examples": EXAMPLES}


@probe("flwr")
def scalars_at_server() -> tuple[bool, Numbers]:
    """How far a 0-d parameter of one client moves the mean, in units of the ``C/n`` for which noise is set."""
    server = _strategy(
        "DifferentialPrivacyServerSideFixedClipping",
        noise_multiplier=0.0,
        clipping_norm=1.0,
        num_sampled_clients=CLIENTS,
    )
    before = {"w": np.zeros(4), "scale": np.zeros(())}
    still, moved = ({"w": np.full(4, 1e-9), "scale": np.full((), x)} for x in (0.0, 50.0))
    after = _aggregated(server, before, [(moved, 1), *[(still, 1)] * (CLIENTS - 1)])
    factor = float(after["scale"]) * CLIENTS
    return factor > 1.01, {"factor": factor, "clients": CLIENTS}


@probe("flwr")
def adaptive_direction() -> tuple[bool, Numbers]:
    """Where the clipping norm goes in 30 rounds of updates with norms of median 1, from 0.1 and from 10."""
    ends = {}
    for start in (0.1, 10.0):
        server = _strategy(
            "DifferentialPrivacyServerSideAdaptiveClipping",
            noise_multiplier=0.0,
            num_sampled_clients=CLIENTS,
            initial_clipping_norm=start,
        )
        before = {"w": np.zeros(2)}
        replies = [({"w": np.array([0.55 + 0.1 * k, 0.0])}, 1) for k in range(CLIENTS)]
        for _ in range(ROUNDS):
            _aggregated(server, before, replies)
        ends[f"from {start:g}"] = float(server.clipping_norm)
    return ends["from 0.1"] < 0.1 or ends["from 10"] > 10.0, ends
