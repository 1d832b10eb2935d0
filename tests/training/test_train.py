"""Central training: SGD as torch has it, deterministic, resumable, and the user's model left alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from leakgauge.client import Recipe
from leakgauge.errors import LeakgaugeError, ModelError
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task, task_is_untouched
from leakgauge.training import accuracy, train
from leakgauge.types import Domain, Records


def same(one: dict, other: dict) -> bool:
    return list(one) == list(other) and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("nesterov", [False, True])
def test_it_is_torchs_sgd(nesterov: bool) -> None:
    task, records = small_task(), small_records(8)
    made = train(task, records, steps=3, batch=8, learning_rate=0.2, nesterov=nesterov, seed=3)[-1]
    model = copy.deepcopy(task.model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=5e-4, nesterov=nesterov)
    for epoch in range(3):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed_of(3, epoch, 0)))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(records.inputs[order].double()), records.labels[order]).backward()
        optimiser.step()
    for name, value in model.state_dict().items():
        assert torch.allclose(made.state[name], value, atol=1e-12)


def test_kept_steps_and_the_last_and_a_resumed_training_ends_where_the_other_did() -> None:
    task, records = small_task().protect("gaussian(std=0.01)"), small_records(10)
    whole = train(task, records, steps=7, batch=4, keep=(0, 4, 100), seed=1)
    assert [c.step for c in whole] == [0, 4, 7]
    assert same(dict(whole[0].state), task.model.state_dict())
    rest = train(task, records, steps=7, batch=4, keep=(), seed=1, start=whole[1])
    assert same(dict(rest[-1].state), dict(whole[-1].state))
    assert not same(dict(train(task, records, steps=7, batch=4, keep=(), seed=2)[-1].state), dict(rest[-1].state))


def test_the_protection_acts_in_every_step() -> None:
    records = small_records(8)
    plain, frozen = small_task(), small_task().protect("random_prune(p=0.999999)")
    moved = [train(task, records, steps=2, batch=4, weight_decay=0)[-1].state for task in (plain, frozen)]
    gaps = [sum(float((m[n] - v).abs().sum()) for n, v in plain.model.state_dict().items()) for m in moved]
    assert gaps[0] > 1e-3 > gaps[1]


def test_the_users_model_is_left_alone_and_running_statistics_are_learnt() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))
    task = Task(model, Domain("image", (1, 6, 6), 4), Recipe(mode="train"))
    found: list = []
    state = torch.get_rng_state()
    task_is_untouched(model, lambda: found.extend(train(task, small_records(16), steps=20, batch=8, keep=())))
    assert torch.equal(torch.get_rng_state(), state)
    assert float((found[-1].state["1.running_mean"] - model.state_dict()["1.running_mean"]).abs().sum()) > 0
    later = task.at(found[-1].state)
    task_is_untouched(later, lambda: accuracy(later, small_records(16)))
    assert accuracy(later, small_records(16)) == accuracy(later.model, small_records(16))


def test_weight_changes_train_too() -> None:
    model = small_task().model
    domain = Domain("image", (1, 6, 6), 4)
    records = small_records(8)
    gradient, change = (
        train(Task(model, domain, Recipe(shares=shares, learning_rate=0.5)), records, steps=2, batch=8)[-1].state
        for shares in ("gradient", "change")
    )
    for name, value in gradient.items():
        assert torch.allclose(change[name], value, atol=1e-12)


def test_training_learns() -> None:
    records = small_records(12)
    labels = (records.inputs[:, 0, :3].mean((1, 2)) > records.inputs[:, 0, 3:].mean((1, 2))).long()
    task, easy = small_task(), Records(records.inputs, labels, records.domain)
    last = train(task, easy, steps=60, batch=12, learning_rate=0.05)[-1]
    assert accuracy(task.at(last.state), easy) == 1.0 > accuracy(task, easy)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": -1}, "steps must be an integer ≥ 0"),
        ({"batch": 0}, "batch must be an integer ≥ 1"),
        ({"learning_rate": 0.0}, r"learning_rate must lie in \(0, ∞\)"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\)"),
    ],
)
def test_numbers_outside_their_domain_are_refused(options: dict, says: str) -> None:
    with pytest.raises(LeakgaugeError, match=says):
        train(small_task(), small_records(4), **{"steps": 1, **options})


def test_the_state_of_another_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"Task.at: the state does not fit the model in 'first.weight'"):
        small_task().at({name: value[:1] for name, value in small_task().model.state_dict().items()})
