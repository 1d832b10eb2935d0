"""What the adversary sees: releases that do not depend on each other, grants, seeds; and nothing else."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.client import Recipe
from leakgauge.errors import LeakgaugeError, ObservationError
from leakgauge.observation import Observation, Round, check, observe
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task
from leakgauge.types import Threat, Tree

NOISY = "random_prune(p=0.5) | gaussian(std=0.1)"


def test_without_a_defense_the_update_is_seen_as_it_is() -> None:
    task, records = small_task(batch=2), small_records(5)
    seen = observe(task, records)
    assert [o.batch for o in seen] == [2, 2]  # the fifth record fills no batch
    for one, batch in zip(seen, records.batches(2), strict=True):
        for name, value in task.update(batch).items():
            assert torch.equal(one.rounds[0].observed[name], value)
        assert one.labels is not None
        assert torch.equal(one.labels, batch.labels)
    check(task, seen)


def test_a_clients_release_does_not_depend_on_the_others() -> None:
    task, records = small_task().protect(NOISY), small_records(4)
    many, few = observe(task, records, seed=3), observe(task, records[:2], seed=3)
    for one, other in zip(few, many, strict=False):
        for name, value in one.rounds[0].observed.items():
            assert torch.equal(value, other.rounds[0].observed[name])
    again = observe(task, records, seed=4)
    assert not torch.equal(again[0].rounds[0].observed["last.bias"], many[0].rounds[0].observed["last.bias"])
    granted = observe(task, records, threat=Threat(grants=frozenset({"mask"})))
    first, second = (granted[i].rounds[0].side["0.mask"]["middle.bias"] for i in (0, 1))
    assert not torch.equal(first, second)


def test_every_round_draws_anew() -> None:
    task = small_task().protect("gaussian(std=1.0)")
    one = observe(task, small_records(1), rounds=[task.params, task.params])[0]
    a, b = (r.observed["last.bias"] for r in one.rounds)
    assert not torch.equal(a, b)
    again = observe(task, small_records(1), rounds=2)[0]
    assert all(torch.equal(x.observed["last.bias"], y) for x, y in zip(again.rounds, (a, b), strict=True))


@pytest.mark.parametrize("rounds", [0, -1, []])
def test_there_is_at_least_one_round(rounds: int | list[Tree]) -> None:
    with pytest.raises(LeakgaugeError, match=r"observe: .*round.*; "):
        observe(small_task(), small_records(1), rounds=rounds)


def test_labels_and_nuisances_are_seen_only_if_granted() -> None:
    task, records = small_task().protect(NOISY), small_records(1)
    hidden = observe(task, records, threat=Threat(labels="inferred"))[0]
    assert hidden.labels is None
    assert hidden.rounds[0].side == {}
    granted = observe(task, records, threat=Threat(grants=frozenset({"mask", "threshold"})))[0]
    assert set(granted.rounds[0].side) == {"0.mask"}


def test_an_observation_holds_nothing_else() -> None:
    assert [f.name for f in fields(Observation)] == ["rounds", "batch", "labels"]
    assert [f.name for f in fields(Round)] == ["observed", "params", "side", "nuisances"]


def test_the_global_generator_is_left_alone() -> None:
    task, state = small_task().protect(NOISY), torch.get_rng_state()
    observe(task, small_records(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_weight_changes_are_observed_too() -> None:
    task = small_task(batch=2)
    task = Task(task.model, task.domain, Recipe(batch=2, shares="change", local_steps=3))
    seen = observe(task, small_records(2))
    check(task, seen)
    assert torch.equal(seen[0].rounds[0].observed["last.bias"], task.update(small_records(2))["last.bias"])


@given(st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 1000), st.integers(0, 5)), unique=True, min_size=2))
def test_seeds_are_mixed_without_collisions(keys: list[tuple[int, int, int]]) -> None:
    seeds = [seed_of(*key) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_nearby_keys_share_nothing() -> None:
    near = [seed_of(0, i) for i in range(256)]
    flips = [bin(a ^ b).count("1") for a, b in pairwise(near)]
    assert sum(flips) / len(flips) == pytest.approx(31.5, abs=1.5)
    assert seed_of(1, 0) != seed_of(0, 1) != seed_of(0, 1, 0)


def test_nothing_to_attack() -> None:
    with pytest.raises(ObservationError, match="there is no observation to attack; give at least one"):
        check(small_task(), [])
