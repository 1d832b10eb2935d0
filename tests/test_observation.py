"""What the adversary sees: releases that do not depend on each other, grants, seeds; and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge import attacks
from leakgauge.adversary import Reconstruction
from leakgauge.client import Recipe
from leakgauge.errors import LeakgaugeError, ObservationError
from leakgauge.observation import Observation, Round, check, encoded, observe, send
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task
from leakgauge.types import Candidate, Release, Threat, Tree, address_of, matching

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
    first, second = (granted[i].rounds[0].granted["random_prune.mask"]["middle.bias"] for i in (0, 1))
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
    assert hidden.rounds[0].granted == {}
    granted = observe(task, records, threat=Threat(grants=frozenset({"mask"})))[0]
    assert set(granted.rounds[0].granted) == {"recipe.labels", "random_prune.mask"}
    assert granted.labels is granted.rounds[0].granted["recipe.labels"]


def test_a_granted_mask_is_the_one_behind_the_update() -> None:
    task, records = small_task().protect("random_prune(p=0.5)"), small_records(1)
    (one,) = observe(task, records, threat=Threat(grants=frozenset({"random_prune.mask"})))
    mask = one.rounds[0].granted["random_prune.mask"]
    for name, value in task.update(records).items():
        torch.testing.assert_close(one.rounds[0].observed[name], mask[name] * value, rtol=0, atol=0)


def test_equal_parts_of_a_chain_are_granted_each_by_its_own_address() -> None:
    task, records = small_task().protect("random_prune(p=0.5) | random_prune(p=0.2)"), small_records(1)
    (second,) = observe(task, records, threat=Threat(grants=frozenset({"random_prune#2.mask"})))
    assert set(second.rounds[0].granted) == {"recipe.labels", "random_prune#2.mask"}
    (both,) = observe(task, records, threat=Threat(grants=frozenset({"random_prune.mask", "random_prune#2.mask"})))
    masks = [both.rounds[0].granted[address] for address in ("random_prune.mask", "random_prune#2.mask")]
    for name, value in task.update(records).items():
        torch.testing.assert_close(
            both.rounds[0].observed[name], masks[1][name] * (masks[0][name] * value), rtol=0, atol=0
        )
    with pytest.raises(
        ObservationError,
        match=r"threat\.grants: 'mask' may mean random_prune\.mask or random_prune#2\.mask; say 'random_prune\.mask'",
    ):
        observe(task, records, threat=Threat(grants=frozenset({"mask"})))


@pytest.mark.parametrize(
    ("grant", "remedy"),
    [
        ("random_prune.maks", "did you mean 'random_prune.mask'?"),
        ("topk.threshold", "known: "),
        ("learning_rate", "known: "),  # a shared gradient does not depend on it
    ],
)
def test_a_grant_of_what_nobody_has_is_refused_with_the_nearest(grant: str, remedy: str) -> None:
    task = small_task().protect(NOISY)
    with pytest.raises(ObservationError) as raised:
        observe(task, small_records(1), threat=Threat(grants=frozenset({grant})))
    assert str(raised.value).startswith(f"threat.grants: there is no nuisance '{grant}' to grant; {remedy}")


def test_a_bare_name_means_the_one_address_that_ends_in_it() -> None:
    addresses = ["recipe.labels", "mixup.indices", "mixup.coefficients", "precode.noise"]
    assert address_of("indices", addresses) == "mixup.indices"
    assert address_of("mixup.indices", addresses) == "mixup.indices"
    assert matching("dices", addresses) == []
    with pytest.raises(ObservationError, match="take it out: nothing is hidden here"):
        address_of("mask", [])


def test_labels_and_rate_have_words_of_their_own() -> None:
    addresses = ["recipe.labels", "recipe.learning_rate", "random_prune.mask"]
    granted = dict.fromkeys(addresses[:2], "granted")
    assert Threat().mapping(addresses) == {**granted, "random_prune.mask": "hidden"}
    assert Threat(labels="joint", learning_rate="unknown").mapping(addresses) == dict.fromkeys(addresses, "hidden")
    assert Threat(labels="inferred", grants=frozenset({"labels"})).mapping(addresses)["recipe.labels"] == "granted"


def test_a_threat_may_be_cut_to_what_a_defense_has() -> None:
    threat = Threat(grants=frozenset({"mask", "precode.noise"}), labels="inferred")
    addresses = ["recipe.labels", "random_prune.mask"]
    assert threat.about(addresses) == Threat(grants=frozenset({"mask"}), labels="inferred")
    with pytest.raises(ObservationError, match=r"there is no nuisance 'precode\.noise' to grant"):
        threat.mapping(addresses)


def test_the_rate_is_granted_where_the_update_depends_on_it() -> None:
    plain, records = small_task(), small_records(1)
    task = Task(plain.model, plain.domain, Recipe(shares="change", learning_rate=0.25))
    (known,) = observe(task, records)
    assert known.rounds[0].granted["recipe.learning_rate"] == 0.25
    (hidden,) = observe(task, records, threat=Threat(learning_rate="unknown"))
    assert set(hidden.rounds[0].granted) == {"recipe.labels"}
    assert set(observe(plain, records)[0].rounds[0].granted) == {"recipe.labels"}


def test_a_nuisance_is_granted_or_hidden_later_in_every_round() -> None:
    task = small_task().protect("precode(k=3)")
    (one,) = observe(task, small_records(1), rounds=2)
    noise = torch.ones(1, 3)
    told = one.given("precode.noise", noise)
    assert all(each.granted["precode.noise"] is noise for each in told.rounds)
    assert all(set(each.granted) == {"recipe.labels", "precode.noise"} for each in told.rounds)
    hidden = told.given("precode.noise", None).given("recipe.labels", None)
    assert [dict(each.granted) for each in hidden.rounds] == [{}, {}]
    assert set(one.rounds[0].granted) == {"recipe.labels"}  # the first observation stays as it was


def test_an_observation_holds_nothing_else() -> None:
    assert [f.name for f in fields(Observation)] == ["rounds", "batch"]
    assert [f.name for f in fields(Round)] == ["observed", "params", "granted", "buffers", "clients", "sent"]


def test_no_repr_prints_the_numbers_of_a_record() -> None:
    task = small_task().protect("mixup(k=2) | precode(k=3) | lrp() | random_prune(p=0.5)")
    records = small_records(3)
    (one, *_) = observe(task, records, threat=Threat(grants=frozenset(task.protection.nuisances)))
    encoding = encoded(task, records)
    values = [
        records,
        encoding,
        one,
        one.rounds[0],
        send(task, encoding[:1], task.params, (0,)),
        Candidate(records.inputs.unsqueeze(0), records.labels.unsqueeze(0), {"precode.noise": torch.rand(1, 3)}),
        Reconstruction(records.inputs.unsqueeze(1), records.labels.unsqueeze(1), torch.zeros(3)),
        Release(task.update(records[:1]), {"mask": task.params}),
    ]
    for value in values:
        assert "tensor(" not in repr(value)
        assert not re.search(r"\d\.\d{3}", repr(value)), "a number of the record is printed"
    for address in one.rounds[0].granted:
        assert address in repr(one)


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
    with pytest.raises(ObservationError, match="attack: there is no observation to attack; give at least one"):
        check(small_task(), [])


@pytest.mark.parametrize("attack", [attacks.adaptive(steps=2), attacks.analytic(), attacks.drop_layer(steps=2)])
def test_an_attack_on_something_else_says_so_in_one_sentence(attack: Any) -> None:
    task, records = small_task(), small_records(2)
    seen = observe(task, records)
    for wrong in ((task, records), (task, seen[0]), (seen, task), (task, records.inputs)):
        with pytest.raises(ObservationError, match=r"attack: .*; (call it with|give)"):
            attack(*wrong)


@pytest.mark.parametrize("ask", [attacks.adaptive().against, attacks.standard().treatments, attacks.dlg().treatments])
def test_treatments_of_something_else_say_so_in_one_sentence(ask: Any) -> None:
    task = small_task()
    for wrong in ((task.model,), (task, "known"), (small_records(1), Threat())):
        with pytest.raises(ObservationError, match=r"threat: .* is a .*; give a T"):
            ask(*wrong)


def test_a_threat_has_a_server_of_two_kinds_of_which_one_is_not_modelled() -> None:
    with pytest.raises(LeakgaugeError, match="threat: server must be one of honest, active, got 'evil'"):
        Threat(server="evil")  # type: ignore[arg-type]
    with pytest.raises(LeakgaugeError, match="threat: active servers are not modelled yet; leave server out"):
        Threat(server="active")


@pytest.mark.parametrize("grants", [3, [3], {"random_prune.mask", None}])
def test_grants_are_names(grants: Any) -> None:
    with pytest.raises(LeakgaugeError, match=r"threat: grants must be a set of names, got .*; give addresses"):
        Threat(grants=grants)


def test_all_that_is_wrong_with_a_threat_is_said_at_once() -> None:
    with pytest.raises(LeakgaugeError, match=r"(?s)labels must .*learning_rate must .*server must"):
        Threat(labels="x", learning_rate="y", server="z")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("threat", "address"),
    [
        (Threat(), "recipe.labels"),
        (Threat(), "recipe.learning_rate"),
        (Threat(grants=frozenset({"recipe.labels"}), labels="joint"), "recipe.labels"),
        (Threat(grants=frozenset({"labels"}), labels="inferred"), "recipe.labels"),
        (Threat(grants=frozenset({"learning_rate"}), learning_rate="unknown"), "recipe.learning_rate"),
    ],
)
def test_spellings_of_one_address_say_one_thing(threat: Threat, address: str) -> None:
    addresses = ["recipe.labels", "recipe.learning_rate", "random_prune.mask"]
    assert threat.knows(address)
    assert threat.mapping(addresses)[address] == "granted"
    hidden = threat.without(address)
    assert not hidden.knows(address)
    changed = {a for a in addresses if hidden.mapping(addresses)[a] != threat.mapping(addresses)[a]}
    assert changed == {address}


def lacking(task: Task) -> list[object]:
    params = task.params
    name = next(iter(params))
    return [
        1.5,
        True,
        "two",
        params,
        params[name],
        [{}],
        [params[name]],
        [{name: params[name]}],
        [params, {**params, "zz": params[name]}],
        [{**params, name: params[name][:1]}],
        [{**params, name: 0.5}],
    ]


@pytest.mark.parametrize("case", range(11))
def test_a_round_has_the_parameters_of_the_model(case: int) -> None:
    task = small_task()
    with pytest.raises(LeakgaugeError) as raised:
        observe(task, small_records(1), rounds=lacking(task)[case])  # type: ignore[arg-type]
    assert raised.value.where == "observe"
    assert raised.value.remedy


def test_a_state_that_differs_is_named_with_what_differs() -> None:
    task = small_task()
    with pytest.raises(ObservationError, match=r"round 1 .*'last.bais'.*did you mean 'last.bias'"):
        observe(task, small_records(1), rounds=[task.params, {**task.params, "last.bais": torch.zeros(1)}])


@pytest.mark.parametrize("seed", ["a", 1.5, -1, None])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(LeakgaugeError, match="seed must be"):
        observe(small_task(), small_records(1), seed=seed)


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("recipe.learning_rate", 0.1),
        ("recipe.labels", [1]),
        ("random_prune.mask", 0.5),
        ("random_prune.mask", {"a": 1}),
    ],
)
def test_a_grant_is_a_tensor(address: str, value: Any) -> None:
    recipe = Recipe(shares="change", local_steps=2)
    task = Task(small_task().model, small_task().domain, recipe).protect("random_prune(p=0.5)")
    (one,) = observe(task, small_records(1))
    granted = one.given(address, value)
    with pytest.raises(ObservationError, match=re.escape(f"the granted {address!r}")) as raised:
        attacks.dlg()(task, [granted])
    assert "tensor" in raised.value.what
