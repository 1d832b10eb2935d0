"""Treatments: what an adversary does about everything that it is not told, and that it does what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from leakgauge.adversary import Adversary, Likelihood, adam, cosine, density, l1, l2, marginal, scaled_l2, through
from leakgauge.adversary.treatments import RULES, Case, settled, with_treatment
from leakgauge.attacks import adaptive
from leakgauge.client import Recipe
from leakgauge.observation import Observation, observe
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task
from leakgauge.types import How, Threat, Treatment

RATE, LABELS, SCALE = "recipe.learning_rate", "recipe.labels", "lrp.scale"


def changing(how: str = "identity()", *, steps: int = 1, rate: float = 0.1, batch: int = 1) -> Task:
    plain = small_task()
    recipe = Recipe(batch=batch, shares="change", local_steps=steps, learning_rate=rate)
    return Task(plain.model, plain.domain, recipe).protect(how)


def treated(likelihood: Likelihood, task: Task, threat: Threat | None = None, **options: object) -> dict[str, How]:
    adversary = Adversary(likelihood=likelihood, **options)  # type: ignore[arg-type]
    return {treatment.address: treatment.how for treatment in adversary.treatments(task, threat)}


HIDDEN = Threat(labels="inferred", learning_rate="unknown")


@pytest.mark.parametrize(
    ("likelihood", "how", "steps", "address", "word"),
    [
        (l2(), "random_prune(p=0.5)", 1, "random_prune.mask", "read off"),
        (density(), "random_prune(p=0.5) | gaussian(std=0.1)", 1, "random_prune.mask", "summed out"),
        (l2(), "random_prune(p=0.5) | gaussian(std=0.1)", 1, "random_prune.mask", "assumed"),
        (density(), "gaussian(std=0.1) | prune(p=0.5)", 1, "prune.threshold", "read off"),
        (density(), "prune(p=0.5) | gaussian(std=0.1)", 1, "prune.threshold", "assumed"),
        (l2(), "identity()", 1, LABELS, "read off"),
        (cosine(), "identity()", 1, RATE, "cancelled"),
        (l2(), "identity()", 1, RATE, "optimised"),
        (scaled_l2(), "identity()", 1, RATE, "optimised"),
        (l1(), "identity()", 1, RATE, "optimised"),
        (density(), "gaussian(std=0.1)", 1, RATE, "summed out"),
        (density(), "laplace(scale=0.1)", 1, RATE, "optimised"),
        (cosine(), "identity()", 3, RATE, "optimised"),
        (density(), "gaussian(std=0.1)", 3, RATE, "optimised"),
        (cosine(), "lrp()", 1, SCALE, "cancelled"),
        (through(l2()), "lrp() | prune(p=0.5)", 1, SCALE, "optimised"),
        (marginal(std=0.1), "lrp()", 1, SCALE, "summed out"),
        (cosine(), "lrp()", 3, SCALE, "optimised"),
        (l2(), "precode(k=3)", 1, "precode.noise", "assumed"),
        (l2(), "mixup(k=2)", 1, "mixup.indices", "assumed"),
    ],
)
def test_what_is_done_about_a_hidden_nuisance(
    likelihood: Likelihood, how: str, steps: int, address: str, word: How
) -> None:
    task = changing(how, steps=steps)
    words = treated(likelihood, task, HIDDEN)
    assert words[address] == word
    assert list(words) == list(task.nuisances)  # every nuisance has one, in their order
    granted = replace(HIDDEN, grants=frozenset({address}))
    assert treated(likelihood, task, granted)[address] == "granted"


def test_what_has_no_density_has_treatments_too() -> None:
    task = small_task().protect("random_prune(p=0.5) | gaussian(std=0.1) | laplace(scale=0.1)")
    assert treated(density(), task)["random_prune.mask"] == "assumed"
    assert adaptive().against(task).treatments == Adversary(likelihood=density()).treatments(task)


def test_numbers_of_the_network_and_labels_are_searched_where_the_adversary_says_so() -> None:
    task = changing("precode(k=3)")
    assert treated(l2(), task, HIDDEN, hidden=1e-3)["precode.noise"] == "optimised"
    assert treated(l2(), task, HIDDEN, labels="joint")[LABELS] == "optimised"
    assert treated(l2(), task)[LABELS] == treated(l2(), task)[RATE] == "granted"


@pytest.mark.parametrize(
    ("how", "address", "word"),
    [
        ("mixup(k=2)", "mixup.indices", "enumerated"),
        ("mixup(k=2)", "mixup.coefficients", "optimised"),
        ("instahide(k=2)", "instahide.signs", "cancelled"),
        ("ats()", "ats.choice", "enumerated"),
        ("precode(k=3)", "precode.noise", "read off"),
        ("precode(k=3) | gaussian(std=0.1)", "precode.noise", "optimised"),
    ],
)
def test_an_attack_around_the_adversary_knows_better(how: str, address: str, word: How) -> None:
    task = small_task().protect(how)
    approach = adaptive().against(task)
    words = {treatment.address: treatment.how for treatment in approach.treatments}
    assert list(words) == list(task.nuisances)
    assert words[address] == word
    granted = adaptive().treatments(task, Threat(grants=frozenset({address})))
    assert {treatment.address: treatment.how for treatment in granted}[address] == "granted"
    assert all(str(treatment) in str(approach) for treatment in approach.treatments)


def test_every_word_is_used_by_somebody() -> None:
    used = set()
    for how, steps in (("mixup(k=2) | precode(k=3) | random_prune(p=0.5) | gaussian(std=0.1)", 1), ("lrp()", 3)):
        task = changing(how, steps=steps)
        for likelihood in (cosine(), density() if steps == 1 else l2()):
            used |= set(treated(likelihood, task, HIDDEN).values()) | set(treated(likelihood, task).values())
        used |= {treatment.how for treatment in adaptive().treatments(task, HIDDEN)}
    assert used == set(get_args(How))


def test_a_treatment_is_a_sentence_and_a_row_of_a_ledger() -> None:
    (_, rate) = Adversary(likelihood=cosine()).treatments(changing(), HIDDEN)
    assert str(rate) == "recipe.learning_rate: hidden; cancelled by a scale-free likelihood"
    assert rate.as_json() == {
        "address": RATE,
        "how": "cancelled",
        "sentence": "hidden; cancelled by a scale-free likelihood",
    }


def test_what_is_granted_stays_granted_whatever_an_attack_knows() -> None:
    listed = (Treatment("a.x", "granted", "granted"), Treatment("b.y", "assumed", "hidden; taken as 0"))
    better = [Treatment(address, "read off", "hidden; read off") for address in ("a.x", "b.y", "c.z")]
    assert with_treatment(listed, *better) == (listed[0], better[1])


def test_a_rule_of_another_package_is_asked_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Treatment("precode.noise", "enumerated", "hidden; tried one by one")
    monkeypatch.setattr(
        "leakgauge.adversary.treatments.RULES",
        [RULES[0], lambda case, address, nuisance: own if address == own.address else None, *RULES[1:]],
    )
    task = small_task().protect("precode(k=3)")
    assert own in Adversary(likelihood=l2()).treatments(task)
    told = Adversary(likelihood=l2()).treatments(task, Threat(grants=frozenset({"noise"})))
    assert {treatment.address: treatment.how for treatment in told}["precode.noise"] == "granted"


def test_the_likelihood_that_is_used_is_the_one_the_treatments_speak_of() -> None:
    def used(likelihood: Likelihood, task: Task) -> Likelihood:
        return settled(Case(Adversary(likelihood=likelihood), task, HIDDEN.mapping(task.nuisances)))[0]

    assert used(l2(relative=True, drop=("last",)), changing()) == scaled_l2(relative=True, drop=("last",))
    assert used(cosine(), changing()) == cosine()
    assert used(density(), changing("gaussian(std=0.1)")) == marginal(std=0.1, low=0.0, high=float("inf"))
    assert used(through(l2()), changing("prune(p=0.5)")) == through(l2(), fitted=True)
    assert used(l2(), changing(steps=2)) == l2()
    assert used(l2(), small_task()) == l2()  # a shared gradient has no rate
    only_lrp = replace(HIDDEN, learning_rate="known")
    task = changing("lrp(spread=0.5) | gaussian(std=0.1)")
    case = Case(Adversary(likelihood=density()), task, only_lrp.mapping(task.nuisances))
    assert settled(case)[0] == marginal(std=0.1, low=0.5, high=1.5)
    assert case.scales == (SCALE,)


# --- it does what it says --------------------------------------------------------------------------------------------


def seen_by(task: Task, *, batch: int = 1, threat: Threat | None = None) -> list[Observation]:
    return observe(task, small_records(batch), threat=threat or Threat(learning_rate="unknown"))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    ("likelihood", "how"),
    [
        (l2(), "identity()"),
        (l1(), "identity()"),
        (cosine(), "identity()"),
        (through(l2()), "prune(p=0.5)"),
        (density(), "gaussian(std=0.01)"),
        (density(), "laplace(scale=0.01)"),
    ],
    ids=repr,
)
def test_a_hidden_rate_is_never_looked_up_in_the_recipe(likelihood: Likelihood, how: str, steps: int) -> None:
    """The same observations under a recipe of another rate: every number of the attack is the same."""
    task = changing(how, steps=steps)
    other = replace(task, recipe=replace(task.recipe, learning_rate=37.0))
    seen = seen_by(task)
    adversary = Adversary(likelihood=likelihood, solver=adam(lr=0.05, steps=4))
    first, second = adversary(task, seen), adversary(other, seen)
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.log_posterior, second.log_posterior)
    told = [one.given(RATE, torch.tensor(0.1)) for one in seen]
    assert torch.equal(adversary(task, told).inputs, adversary(other, told).inputs)  # nor is a granted one


def test_a_granted_rate_is_used_in_place_of_the_recipes() -> None:
    task = changing()
    (one,) = seen_by(task, threat=Threat())
    still = Adversary(likelihood=l2(), solver=adam(lr=1e-12, steps=1))
    truth = small_records(1).inputs.unsqueeze(0).double()
    assert float(still(task, [one], begin=truth).log_posterior) > -1e-15
    doubled = float(still(task, [one.given(RATE, torch.tensor(0.2))], begin=truth).log_posterior)
    square = sum(float(value.square().sum()) for value in one.rounds[0].observed.values())
    assert doubled == pytest.approx(-square, rel=1e-6)


@pytest.mark.parametrize(("how", "threat"), [("identity()", HIDDEN), ("lrp()", replace(HIDDEN, learning_rate="known"))])
def test_hidden_rates_of_several_steps_are_found_beside_the_inputs(how: str, threat: Threat) -> None:
    """From the true record the search closes in on the true rates: what is left of the distance shrinks."""
    task, truth = changing(how, steps=3, rate=0.5), small_records(1).inputs.unsqueeze(0).double()
    seen = seen_by(task, threat=replace(threat, labels="known"))
    few, many = (
        Adversary(likelihood=l2(relative=True), solver=adam(lr=0.02, steps=steps))(task, seen, begin=truth)
        for steps in (1, 60)
    )
    gaps = [-float(one.log_posterior) for one in (few, many)]
    prior = 3 * float(torch.tensor(2.0).log()) if how == "lrp()" else 0.0  # three numbers under U(0, 2)
    assert gaps[1] - prior < 0.2 * (gaps[0] - prior)


def test_a_fitted_scale_is_no_unknown_of_the_solver() -> None:
    """The log posterior under a fitted scale is the likelihood alone: no prior of a number that nobody searches."""
    task = small_task().protect("lrp(share=2.0)")
    seen = observe(task, small_records(1))
    still = Adversary(likelihood=l2(), solver=adam(lr=1e-12, steps=1), start="zeros")
    plain = Adversary(likelihood=scaled_l2(), solver=adam(lr=1e-12, steps=1), start="zeros")
    bare = [replace(one, rounds=tuple(replace(r, granted=dict(r.granted)) for r in one.rounds)) for one in seen]
    unprotected = plain(small_task(), bare)
    torch.testing.assert_close(still(task, seen).log_posterior, unprotected.log_posterior, rtol=1e-9, atol=0)


def test_a_scale_without_a_spread_may_be_searched() -> None:
    task = changing("lrp(share=2.0, spread=0.0)", steps=2)
    reconstruction = Adversary(likelihood=l2(), solver=adam(lr=0.05, steps=2))(task, seen_by(task, threat=Threat()))
    assert bool(reconstruction.log_posterior.isfinite().all())


def test_buffers_of_a_round_are_those_it_was_computed_at() -> None:
    """Two observations at the same parameters and other running statistics are two problems, each at its own."""
    task = normalised()
    (one,) = observe(task, small_records(1))
    moved = {name: value + 1.0 for name, value in task.buffers.items() if name.endswith("running_mean")}
    other = replace(one, rounds=(replace(one.rounds[0], buffers=moved),))
    adversary = Adversary(likelihood=l2(), solver=adam(lr=0.05, steps=2), start="grey")
    alone: list[Tensor] = [adversary(task, [each]).log_posterior for each in (one, other)]
    assert not torch.allclose(alone[0], alone[1], rtol=1e-3)
    torch.testing.assert_close(adversary(task, [one, other]).log_posterior, torch.cat(alone), rtol=1e-9, atol=0)


def normalised() -> Task:
    layers = torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Tanh(), torch.nn.Flatten()
    return Task(torch.nn.Sequential(*layers, torch.nn.Linear(48, 4)).double(), small_task().domain)
