"""Less protection never looks safer: what is found under a stronger defense counts for the weaker one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from leakgauge import Study, data
from leakgauge.adversary import Reconstruction
from leakgauge.attacks.analytic import Analytic
from leakgauge.audit import audit
from leakgauge.audit.judge.order import weakens
from leakgauge.defenses import Protection, Release, UpdatePart, protection
from leakgauge.expr import Part
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Context, Tree

NOISE = "gaussian(std=1e-06)"


@dataclass(frozen=True)
class Asking(UpdatePart):
    """A stranger's part that looks at the client's weights."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        assert context is not None
        return Release({name: value + context.params[name] for name, value in update.items()})


@pytest.mark.parametrize(
    ("weaker", "stronger", "holds"),
    [
        ("identity()", "gaussian(std=0.1)", True),
        ("identity()", "clip(norm=1.0) | gaussian(std=0.1)", True),
        ("gaussian(std=0.1)", "identity()", False),
        ("gaussian(std=0.1)", "gaussian(std=0.2)", True),
        ("gaussian(std=0.2)", "gaussian(std=0.1)", False),
        ("clip(norm=1.0)", "clip(norm=1.0) | gaussian(std=0.2)", True),
        ("clip(norm=1.0) | gaussian(std=0.1)", "clip(norm=1.0) | gaussian(std=0.2) | prune(p=0.5)", True),
        ("gaussian(std=0.1) | prune(p=0.5)", "gaussian(std=0.2) | prune(p=0.5)", False),  # zeros hide what to add to
        ("laplace(scale=0.1)", "laplace(scale=0.2)", False),  # true, but not with Laplace noise on top
        ("prune(p=0.5)", "prune(p=0.9)", True),
        ("prune(p=0.9)", "prune(p=0.5)", False),
        ("clip(norm=1.0)", "sign()", True),
        ("identity()", "soteria(layer='2')", False),  # it looks at the record
        ("identity()", "clip(norm=1.0, per='example')", False),
        ("identity()", "lrp()", False),
        ("identity()", "identity()", False),
        ("identity()", "tests.adversary.own_parts:Doubled()", True),  # only a release, which needs nothing else
        ("clip(norm=1.0)", "clip(norm=1.0) | tests.adversary.own_parts:NumpySorted()", True),
        ("identity()", "tests.audit.judge.test_order:Asking()", False),
    ],
)
def test_which_defense_is_another_with_something_on_top(weaker: str, stronger: str, holds: bool) -> None:
    assert weakens(protection(weaker), protection(stronger)) == holds


@dataclass(frozen=True)
class NeedsNoise(Part):
    """An adversary that is blind unless there is noise; the better one of the stronger defense."""

    models_defense = "any"

    def __call__(self, task: Task, observations: Sequence[Observation], **how: Any) -> Reconstruction:
        answer = Analytic()(replace(task, protection=Protection()), observations, **how)
        if repr(task.protection) == NOISE:
            return answer
        return replace(answer, inputs=torch.full_like(answer.inputs, 0.5))


def test_the_weaker_defense_is_at_least_as_bad() -> None:
    records = data.load("fashion_mnist_sample").sample(60)
    study = Study(
        "mlp(width=16, depth=1)",
        records,
        defenses={"none": "identity()", "noisy": NOISE, "drowned": "gaussian(std=100.0)"},
        adversaries={"half": NeedsNoise()},
        leave_out=["generic"],
        updates=10,
    )
    none, noisy, drowned = audit(study).checkpoints[0].defenses
    assert noisy.attack.verdict in ("recognisable", "exact")
    assert none.attack.verdict == noisy.attack.verdict  # "too weak" if only its own adversary counted
    assert none.attack.recognised == noisy.attack.recognised
    after = {adversary.name: adversary for adversary in none.adversaries}["half after noisy"]
    assert after.assumed[0] == f"adds {NOISE} to what was sent, then attacks that: it finds more"
    assert {record.adversary for record in none.records} == {"half after noisy"}
    assert {record.cell for record in none.records} == {record.cell for record in noisy.records}
    assert drowned.attack.verdict == "no evidence"  # an adversary that works without a defense was at hand
    assert [adversary.name for adversary in noisy.adversaries] == ["half"]


def test_an_order_that_holds_borrows_nothing() -> None:
    records = data.load("fashion_mnist_sample").sample(60)
    study = Study(
        "mlp(width=16, depth=1)",
        records,
        defenses={"none": "identity()", "drowned": "gaussian(std=100.0)"},
        adversaries={"reader": Analytic()},
        leave_out=["adaptive"],
        updates=10,
    )
    none, drowned = audit(study).checkpoints[0].defenses
    assert none.attack.verdict == "exact"
    assert drowned.attack.verdict == "too weak"  # the reader models no noise
    assert [adversary.name for adversary in none.adversaries] == ["reader"]
