"""FedAvg on Flower's simulation equals FedAvg in this process; Ray runs in a network namespace."""

from __future__ import annotations

import importlib.util

import pytest

from evidence.checks.simulation import federation, isolated, simulated
from leakgauge.errors import DomainError, MissingExtraError
from leakgauge.fl import Federation


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


def test_what_flower_cannot_do_alike_is_refused() -> None:
    from leakgauge.integrations.flower.simulation import simulate

    task, clients, _ = federation("II")
    for how in (Federation(rounds=1, steps=1, per_round=2), Federation(rounds=1, steps=1, secure=True)):
        with pytest.raises(DomainError, match="federate"):
            simulate(task, clients, how)


def test_without_flower_the_extra_is_named() -> None:
    from leakgauge.integrations.flower.simulation import simulate

    if importlib.util.find_spec("ray") is not None and importlib.util.find_spec("flwr") is not None:
        pytest.skip("flwr[simulation] is installed")
    task, clients, how = federation("II")
    with pytest.raises(MissingExtraError, match="pip install"):
        simulate(task, clients, how)
