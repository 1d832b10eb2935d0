"""Rounds of one client with the same records are one observation: what noise hides once comes out of several."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from leakgauge.adversary import Adversary, lbfgs, scaled_l2
from leakgauge.inspect import Capture, captured, inspect
from leakgauge.inspect.findings import explained
from leakgauge.inspect.rounds import SAME
from leakgauge.storage.states import State, metadata_of
from leakgauge.types import Domain, Records

DOMAIN = Domain("table", (6,), 4)
SECRET = Records(torch.rand(1, 6, generator=torch.Generator().manual_seed(5)), torch.tensor([2]), DOMAIN)
ROUNDS = 6


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def rounds(std: float = 0.004) -> list[Capture]:
    """One record, one step in each round, from other weights each time, with fresh noise."""
    torch.manual_seed(0)
    made = []
    for number in range(ROUNDS):
        model = network()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        nn.functional.cross_entropy(model(SECRET.inputs), SECRET.labels).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        after = {name: value + std * torch.randn(value.shape) for name, value in model.state_dict().items()}
        facts = metadata_of("state", sign=1, round=number, client=3)
        states = (State(tree, Path(f"r{number}"), facts) for tree in (before, after))
        made.append(captured(*states, network()))
    return made


def test_the_rounds_of_a_client_give_more_than_each_of_them() -> None:
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=60))
    *alone, joint = inspect(network(), DOMAIN, rounds(), known=SECRET, attacks=[attack], draws=3, same_records=True)
    assert len(alone) == ROUNDS
    assert joint.name == f"client 3, {ROUNDS} rounds"
    assert SAME in joint.notes
    assert joint.above_noise
    errors = [float((one.inputs - SECRET.inputs).abs().mean()) for one in (*alone, joint)]
    # the noise of a mean of six is smaller by 2.4
    assert errors[-1] < 0.7 * sum(errors[:-1]) / ROUNDS


def test_without_the_assumption_rounds_are_attacked_one_by_one() -> None:
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=5))
    findings = inspect(network(), DOMAIN, rounds()[:2], attacks=[attack], draws=3)
    assert len(findings) == 2


def test_what_the_truth_explains_of_several_rounds_is_their_mean() -> None:
    from leakgauge.inspect.client import Client
    from leakgauge.inspect.rounds import _joined

    client, several = Client(network(), DOMAIN), rounds(std=0.0)
    task = client.task(several[0])
    share = explained(task, SECRET.inputs, SECRET.labels, _joined(client, several, 1, {}))
    assert share > 0.999  # each round at its own weights; float32 differences of weights
