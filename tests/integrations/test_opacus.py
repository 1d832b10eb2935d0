"""DP-SGD through Opacus: without noise it sends what our parts send, with noise it follows their density."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from scipy import stats
from torch import nn

import leakgauge as lg
from leakgauge import bounds
from leakgauge.client import Recipe
from leakgauge.errors import DomainError, MissingExtraError, ModelError
from leakgauge.integrations.opacus import OpacusClient
from leakgauge.testing import small_records, small_task, task_is_untouched
from leakgauge.updates import norm


def task_of(batch: int = 3, **options: object) -> lg.Task:
    plain = small_task()
    return lg.Task(plain.model, plain.domain, Recipe(batch=batch, loss=plain.recipe.loss, **options))  # type: ignore[arg-type]


def needs_opacus() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("opacus")


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_without_noise_it_sends_what_our_parts_send(clip: float, reduction: str) -> None:
    needs_opacus()
    task, records = task_of(3, reduction=reduction), small_records(6)
    theirs = OpacusClient(norm=clip, multiplier=0.0).observe(task, records)
    ours = lg.observe(task.protect(f"clip(norm={clip}, per='example')"), records)
    assert len(theirs) == len(ours) == 2
    for one, other in zip(theirs, ours, strict=True):
        assert torch.equal(one.labels, other.labels)  # type: ignore[arg-type]
        for name, value in other.rounds[0].observed.items():
            # Opacus divides by the norm plus 1e-6
            assert torch.allclose(one.rounds[0].observed[name], value, rtol=1e-4, atol=1e-7)


def test_its_noise_is_that_of_its_protection() -> None:
    needs_opacus()
    task, records = task_of(3), small_records(3)
    client = OpacusClient(norm=0.05, multiplier=2.0)
    noise = client.protection(task.recipe).update.parts[1]  # type: ignore[attr-defined]
    assert noise.std == pytest.approx(0.05 * 2.0 / 3)
    seen, still = (OpacusClient(0.05, m).observe(task, records)[0].rounds[0].observed for m in (2.0, 0.0))
    rest = torch.cat([(seen[name] - still[name]).flatten() for name in still]) / noise.std
    assert stats.kstest(rest.numpy(), "norm").pvalue > 1e-4
    again = client.observe(task, records)[0].rounds[0].observed
    assert all(torch.equal(seen[name], again[name]) for name in seen)


def test_several_steps_send_a_change_and_leave_the_model_alone() -> None:
    needs_opacus()
    task, records = task_of(4, shares="change", local_steps=3, minibatch=2, momentum=0.5), small_records(4)
    client = OpacusClient(norm=1e6, multiplier=0.0)
    made: list[lg.Observation] = []
    task_is_untouched(task, lambda: made.extend(client.observe(task, records)))
    plain = lg.observe(task, records)[0].rounds[0].observed
    for name, value in plain.items():
        assert torch.allclose(made[0].rounds[0].observed[name], value, rtol=1e-3, atol=1e-6)
    assert float(norm(plain)) > 0
    with pytest.raises(DomainError, match="no part of one update"):
        client.protection(task.recipe)


def test_attack_and_bound_of_it() -> None:
    needs_opacus()
    task = task_of(1)
    client = OpacusClient(norm=1.0, multiplier=0.001)
    defended = task.protect(client.protection(task.recipe))
    made = lg.attacks.adaptive(steps=3)(defended, client.observe(task, small_records(2)))
    assert len(made) == 2
    assert bounds.bound_of_task(defended, delta=1e-5).unit == "record"


@pytest.mark.parametrize("method", ["rdp", "prv"])
def test_its_epsilon_is_near_the_exact_one(method: str) -> None:
    needs_opacus()
    found = OpacusClient(norm=1.0, multiplier=4.0).privacy(steps=10, delta=1e-5, method=method)  # type: ignore[arg-type]
    exact = bounds.epsilon_of(4.0, delta=1e-5, steps=10).epsilon
    assert exact * 0.98 <= found.epsilon <= exact * 1.3
    assert "if one record is added or removed" in str(found)


def test_models_and_numbers_it_cannot_take() -> None:
    with pytest.raises(DomainError, match=r"opacus client: norm must lie in \(0, ∞\), got 0.0"):
        OpacusClient(norm=0.0, multiplier=1.0)
    with pytest.raises(DomainError, match="rate must lie in"):
        OpacusClient(norm=1.0, multiplier=1.0, rate=1.5)
    needs_opacus()
    plain = small_task()
    size = plain.domain.size
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(size), nn.Linear(size, plain.domain.classes))
    task = lg.Task(model, plain.domain, Recipe(batch=2))
    with pytest.raises(ModelError, match="Opacus does not take this model"):
        OpacusClient(1.0, 1.0).observe(task, small_records(2))
    with pytest.raises(DomainError, match="multiplier must lie in"):
        OpacusClient(1.0, 0.0).privacy(steps=1, delta=1e-5)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtraError, match=r"leakgauge\[opacus\]"):
        OpacusClient(1.0, 1.0).observe(task_of(1), small_records(1))
