"""The laws of defenses before the update stage, for every one in the catalogue."""

from __future__ import annotations

import pytest
import torch

import leakgauge as lg
from leakgauge.defenses import EarlyPart, Protection, clip, of_stage, protection, prune
from leakgauge.testing import task_is_untouched, texts_of

EARLY = of_stage("input", "model", "training")
TEXTS = texts_of("input", "model", "training")


@pytest.fixture(scope="module")
def task() -> lg.Task:
    domain = lg.data.load("fashion_mnist_sample").domain
    return lg.Task(lg.models.build("mlp(width=20, depth=2)", domain), domain)


@pytest.fixture(scope="module")
def records() -> lg.Records:
    return lg.data.load("fashion_mnist_sample").sample(12, seed=0)


def observed(task: lg.Task, records: lg.Records, seed: int = 0) -> list[dict]:
    return [dict(seen.rounds[0].observed) for seen in lg.observe(task, records, seed=seed)]


def equal(one: list[dict], other: list[dict]) -> bool:
    return all(torch.equal(a[n], b[n]) for a, b in zip(one, other, strict=True) for n in a)


@pytest.mark.parametrize("text", TEXTS)
def test_the_users_model_and_the_global_generator_are_left_alone(text: str, task: lg.Task, records: lg.Records) -> None:
    state = torch.get_rng_state()
    task_is_untouched(task, lambda: lg.observe(task.protect(text), records))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("text", TEXTS)
def test_an_update_is_a_function_of_the_seed_and_differs_from_the_bare_one(
    text: str, task: lg.Task, records: lg.Records
) -> None:
    defended = task.protect(text)
    first = observed(defended, records)
    assert equal(first, observed(defended, records))
    if defended.protection.nuisances:
        assert not equal(first, observed(defended, records, seed=1))
    plain = observed(task, records)
    assert set(plain[0]) <= set(first[0])
    assert not all(torch.equal(a[n], b[n]) for a, b in zip(plain, first, strict=True) for n in a)


@pytest.mark.parametrize("name", sorted(EARLY))
def test_a_neutral_setting_is_the_identity(name: str, task: lg.Task, records: lg.Records) -> None:
    neutral = EARLY[name].neutral()
    if neutral is None:
        pytest.skip(f"{name} has no neutral setting")
    assert equal(observed(task.protect(neutral), records), observed(task, records))


@pytest.mark.parametrize("text", TEXTS)
def test_it_composes_with_every_stage_in_any_order(text: str) -> None:
    part = protection(text)
    assert repr(part) == text
    both = protection(f"{text} | clip(norm=1.0) | prune(p=0.5)")
    assert both.update == clip(norm=1.0) | prune(p=0.5)
    assert both == Protection(part.input, part.model, part.training, both.update)
    assert protection(f"clip(norm=1.0) | {text} | prune(p=0.5)") == both
    assert protection(repr(both)) == both


@pytest.mark.parametrize("text", TEXTS)
def test_nuisances_reach_the_adversary_only_if_they_are_granted(text: str, task: lg.Task, records: lg.Records) -> None:
    defended = task.protect(text)
    hidden = lg.observe(defended, records, threat=lg.Threat(labels="inferred"))
    assert all(not one.rounds[0].granted for one in hidden)
    addresses = set(defended.protection.nuisances)
    granted = lg.observe(defended, records, threat=lg.Threat(grants=frozenset(addresses)))
    assert all(set(one.rounds[0].granted) == addresses | {"recipe.labels"} for one in granted)


@pytest.mark.parametrize("name", sorted(EARLY))
def test_parts_say_their_stage(name: str) -> None:
    made = EARLY[name]
    assert issubclass(made, EarlyPart)
    assert made.stage in ("input", "model", "training")
