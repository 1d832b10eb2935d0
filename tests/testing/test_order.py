"""The law of order over generated pairs, and that a planted violation is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.adversary import Reconstruction
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import Analytic
from leakgauge.expr import Part
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.testing.order import order_holds, ordered, pairs
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 6, 6), 4)


def case(seed: int = 0) -> tuple[Task, Records]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 4))
    return Task(model, DOMAIN), Records(torch.rand(6, 1, 6, 6), torch.arange(6) % 4, DOMAIN)


@dataclass(frozen=True)
class Contrary(Part):
    """An adversary that is better the more noise there is."""

    def __call__(self, task: Task, observations: Sequence[Observation], **how: Any) -> Reconstruction:
        answer = Analytic()(task.protect("identity()"), observations, **how)
        return replace(answer, inputs=answer.inputs * 0) if "0.0001" in repr(task.protection) else answer


def test_a_pair_in_order() -> None:
    task, records = case()
    order_holds(task, records, "identity()", "gaussian(std=1.0)", Adaptive(steps=40))


def test_a_planted_violation_is_seen() -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 4)), DOMAIN)
    _, records = case()
    pair = ordered(task, records, "laplace(scale=0.0001)", "laplace(scale=1e-09)", Contrary())
    assert not pair.holds
    with pytest.raises(AssertionError, match="above"):
        order_holds(task, records, "laplace(scale=0.0001)", "laplace(scale=1e-09)", Contrary())
    rescued = ordered(task, records, "gaussian(std=0.0001)", "gaussian(std=0.0002)", Contrary())
    assert not rescued.holds_alone
    assert rescued.holds


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::leakgauge.errors.AssumptionWarning")  # how it attacks is its own affair here
@pytest.mark.parametrize(("weaker", "stronger"), list(pairs()))
def test_every_generated_pair_is_in_order(weaker: str, stronger: str) -> None:
    task, records = case()
    order_holds(task, records, weaker, stronger, Adaptive(steps=60))
