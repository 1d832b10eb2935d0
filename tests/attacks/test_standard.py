"""``standard()``: it chooses on other records, says so, attacks better than a fixed setting, and reads off first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.adversary import Adversary, Attack, Reconstruction, adam, cosine, density, l2, lbfgs
from leakgauge.attacks import Raced, adaptive, best_of, raced, staged, standard
from leakgauge.attacks.choosing import Choice, Chooser, Choosing, Score
from leakgauge.attacks.confirming import confirmed
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.staged import members, posterior, stage_after, steps_of
from leakgauge.attacks.trials import Trial, first_of
from leakgauge.errors import DomainError
from leakgauge.expr import parse
from leakgauge.metrics import psnr
from leakgauge.observation import observe
from leakgauge.priors import tv
from leakgauge.task import Recipe, Task
from leakgauge.testing.clients import small_records, small_task
from leakgauge.types import Domain, Records, Threat, Treatment

FEW = adam(steps=4)
AGAIN = ("on further updates",)
"""Rungs that try no new setting."""


def by_psnr(records: Records) -> Score:
    def score(guess: Reconstruction, places: Sequence[int]) -> float:
        batch = guess.inputs.shape[1]
        own = records.inputs[[i * batch + j for i in places for j in range(batch)]]
        return float(psnr(guess.inputs.flatten(0, 1), own).mean())

    return score


@pytest.fixture(scope="module")
def task() -> Task:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        model = nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2, padding=1),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(54, 12),
            nn.Tanh(),
            nn.Linear(12, 4),
        )
    return Task(model, small_task().domain)


@pytest.fixture(scope="module")
def choice(task: Task) -> Choice:
    records = small_records(5, seed=8)
    return standard(work="quick").choose(task, observe(task, records), by_psnr(records))


def test_it_chooses_among_many_settings_and_attacks_better_than_before(task: Task, choice: Choice) -> None:
    private = small_records(4, seed=9)
    observations = observe(task, private)
    score = by_psnr(private)
    chosen, before = (score(attack(task, observations), range(4)) for attack in (choice.attack, adaptive(steps=100)))
    assert choice.tried > 50
    assert choice.records in (4, 5)
    assert chosen > before + 2


def test_every_way_to_finish_is_begun_and_only_the_best_goes_on(choice: Choice) -> None:
    rungs = {name: count for name, count, _ in choice.rungs}
    assert rungs["third stage"] >= 3
    last = choice.attack
    assert isinstance(last, staged)
    *_, third, rest = last.stages
    assert isinstance(third, Adversary)
    assert steps_of(rest) == 2 * steps_of(third)
    assert choice.tried == sum(rungs[name] for name in rungs if name not in AGAIN)


@pytest.mark.parametrize(
    ("ahead", "further", "chosen", "updates"),
    [
        (1, [5, 6], 0, 4),  # the rival did better on one of four updates: nothing to ask
        (2, [5, 6], 1, 8),  # the lead of the choice was luck
        (2, [6, 5], 0, 8),  # it holds
    ],
)
def test_a_choice_that_was_open_has_to_hold_on_further_updates(
    task: Task, ahead: int, further: list[float], chosen: int, updates: int
) -> None:
    observations = observe(task, small_records(8))
    some = staged(stages=(Adversary(l2(), solver=FEW),))(task, observations[:4])
    first = [9.0, 8.5]

    def marked(which: int) -> Any:  # an attack whose guesses tell which one made them
        return lambda task, observations, **options: replace(some, inputs=torch.full_like(some.inputs, which))

    def score(guess: Reconstruction, places: Sequence[int]) -> float:
        which = int(guess.inputs.mean())
        rival_leads = len(places) == 1 and places[0] < ahead
        return (first if max(places) < 4 else further)[which] + 3.0 * which * rival_leads

    attacks = [marked(0), marked(1)]
    trials = [Trial(attack, attack(task, observations), first[i]) for i, attack in enumerate(attacks)]
    effort = replace(standard(work="quick").effort, records=4)
    choosing = Choosing(Portfolio.of(task, observations), effort, task, observations, score)
    best, seen = confirmed(choosing, trials[0], trials[1:])
    assert (best.attack, seen) == (attacks[chosen], updates)


def test_the_members_of_an_attack_are_its_stages_rivals_and_judge() -> None:
    first, last, judge = (Adversary(l2(), w * tv(), solver=FEW) for w in (1e-3, 1e-2, 1e-1))
    several = best_of(attacks=(staged(stages=(first, last)), first), judge=judge)
    whole = staged(stages=(several, last))
    assert members(whole) == [whole, several, several.attacks[0], first, last, first, judge, last]


def test_the_first_and_the_likeliest_starts_of_every_update_go_on(task: Task) -> None:
    observations = observe(task, small_records(6, seed=4))
    firsts = tuple(
        Adversary(l2(), 1e-6 * tv(), solver=adam(lr=rate, steps=20), start=start)
        for rate, start in ((0.01, "grey"), (0.1, "grey"), (0.1, "normal"))
    )
    stage, judge = Adversary(l2(), 1e-6 * tv(), solver=lbfgs(steps=10)), Adversary(l2(), 1e-6 * tv())
    attack = raced(firsts=firsts, stage=stage, judge=judge)
    assert parse(repr(attack), "attack") == attack
    assert attack.steps == 80
    guess = attack(task, observations)
    lanes = [staged(stages=(first, stage))(task, observations) for first in firsts]
    begun = torch.stack([posterior(judge, task, observations, first(task, observations)) for first in firsts])
    ends = torch.stack([lane.log_posterior for lane in lanes])
    for i, place in enumerate((1 + begun[1:].argmax(0)).tolist()):
        torch.testing.assert_close(guess.log_posterior[i], ends[[0, place], i].max(), atol=1e-3, rtol=1e-2)
    assert guess.evaluations < sum(lane.evaluations for lane in lanes)


def test_what_goes_on_in_a_race_does_not_depend_on_the_other_updates(task: Task) -> None:
    observations = observe(task, small_records(4, seed=4))
    firsts = tuple(Adversary(l2(), w * tv(), solver=adam(steps=20), start="grey") for w in (1e-6, 1e-3, 1e-2))
    judge = Adversary(l2(), 1e-6 * tv())
    attack = raced(firsts=firsts, stage=replace(judge, solver=adam(steps=10)), judge=judge)
    together = attack(task, observations).inputs
    for i, one in enumerate(observations):
        torch.testing.assert_close(attack(task, [one]).inputs[0], together[i], atol=1e-3, rtol=0)


def test_a_race_has_what_led_among_the_lanes_that_always_go_on(task: Task) -> None:
    records = small_records(4, seed=8)
    observations, score = observe(task, records), by_psnr(records)
    begun = [
        Trial(staged(stages=(one,)), one(task, observations), 0.0)
        for one in (Adversary(l2(), w * tv(), solver=FEW, start="grey") for w in (1e-6, 1e-4, 1e-2))
    ]
    effort = replace(standard(work="quick").effort, records=4)
    choosing = Choosing(Portfolio.of(task, observations), effort, task, observations, score)
    race = choosing.raced(begun, begun[2]).attack
    assert isinstance(race, Raced)
    assert race.firsts[0] == first_of(begun[2])
    assert {repr(one) for one in race.firsts} <= {repr(first_of(one)) for one in begun}
    assert len(race.firsts) >= race.keep


@pytest.mark.parametrize(("single", "raced_wins"), [(10.2, True), (11.0, False)])
def test_a_race_gives_way_only_to_a_setting_that_did_clearly_better(
    task: Task, single: float, raced_wins: bool
) -> None:
    observations = observe(task, small_records(4))
    guess = Adversary(l2(), solver=FEW)(task, observations)
    trials = [Trial(Adversary(l2(), solver=FEW), guess, score) for score in (10.0, single)]
    choosing = Choosing(
        Portfolio.of(task, observations), standard(work="quick").effort, task, observations, by_psnr(small_records(4))
    )
    assert choosing.preferred(*trials) is trials[0 if raced_wins else 1]


@pytest.mark.parametrize("firsts", [(), (1,), "grey"])
def test_a_race_without_adversaries_is_refused(firsts: Any) -> None:
    with pytest.raises(DomainError, match="firsts must be adversaries"):
        raced(firsts=firsts, stage=Adversary(), judge=Adversary())


def test_a_choice_is_read_back_from_plain_json(choice: Choice) -> None:
    again = Choice.of_json(choice.as_json())
    assert again.as_json() == choice.as_json()
    assert repr(again.attack) == repr(choice.attack)


def test_it_says_what_it_did(choice: Choice) -> None:
    chooser = standard(work="quick")
    assert isinstance(chooser, Chooser)
    tuned, chose = choice.sentences(chooser)
    assert (
        f"version {standard.version}: the attack was tuned; {choice.tried} settings were tried on {choice.records} "
        in tuned
    )
    assert repr(choice.attack) in chose


def test_with_too_few_reference_records_it_says_that_it_did_not_choose(task: Task) -> None:
    records = small_records(3)
    chooser = standard(work="quick")
    choice = chooser.choose(task, observe(task, records), by_psnr(records))
    assert repr(choice.attack) == repr(chooser)
    assert choice.tried == 0
    assert choice.sentences(chooser) == [
        "standard(work='quick'), version 9: its fixed portfolio attacks: 3 reference updates are too few to choose on "
        "(4 are needed)"
    ]


def test_without_a_choice_the_posterior_decides(task: Task) -> None:
    records = small_records(2)
    fixed = standard(work="quick").fixed(task, observe(task, records))
    assert isinstance(fixed, best_of)
    assert len(fixed.attacks) > 1
    assert repr(parse(repr(fixed), "attack")) == repr(fixed)


@pytest.mark.parametrize("protection", ["identity()", "gaussian(std=0.01)", "prune(p=0.9)", "sign()", "precode()"])
def test_its_steps_are_those_of_its_fixed_portfolio_at_most(task: Task, protection: str) -> None:
    defended, quick = task.protect(protection), standard(work="quick")
    assert steps_of(quick.fixed(defended, observe(defended, small_records(1)))) <= quick.steps


def test_what_structure_gives_is_read_off_first() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 4))
    task, records = Task(model, small_task().domain), small_records(4)
    choice = standard().choose(task, observe(task, records), by_psnr(records))
    assert repr(choice.attack) == "analytic()"
    assert by_psnr(records)(choice.attack(task, observe(task, records)), range(4)) > 60


def test_it_says_why_a_batch_cannot_be_taken_apart() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 4))
    task = Task(model, small_task().domain, Recipe(batch=2)).protect("gaussian(std=0.01)")
    records, chooser = small_records(8), standard(work="quick")
    choice = chooser.choose(task, observe(task, records), by_psnr(records))
    reason = "exact recovery does not apply: gaussian(std=0.01) adds noise"
    assert reason in choice.assumed
    assert any(reason in sentence for sentence in choice.sentences(chooser))
    assert chooser(task, observe(task, records)).notes == (reason,)


@pytest.mark.parametrize(
    "protection", ["identity()", "gaussian(std=0.01)", "prune(p=0.9)", "sign()", "quantise(levels=4)", "clip(norm=0.1)"]
)
def test_the_portfolio_has_more_than_sixty_settings_against_every_defense(task: Task, protection: str) -> None:
    defended, effort = task.protect(protection), standard().effort
    observations = observe(defended, small_records(1))
    portfolio = Portfolio.of(defended, observations)
    firsts = portfolio.firsts(60)
    extended = effort.extend * len(portfolio.extensions(firsts[0], 60)) + len(portfolio.finishes(firsts[0], 60))
    assert len(firsts) + effort.keep + extended + len(portfolio.reweighed(firsts[0])) >= 60
    assert len({repr(one) for one in firsts}) == len(firsts)


def test_a_hidden_mask_is_attacked_with_the_treatment_of_adaptive(task: Task) -> None:
    hidden = task.protect("random_prune(p=0.5) | gaussian(std=0.01)")
    assert standard().treatments(hidden) == adaptive().treatments(hidden)
    portfolio = Portfolio.of(hidden, observe(hidden, small_records(1)))
    assert portfolio.base.likelihood == adaptive().adversary(hidden.protection).likelihood


def test_labels_that_are_searched_for_are_held_in_later_stages(task: Task) -> None:
    observations = observe(task, small_records(2), threat=Threat(labels="joint"))
    first = Adversary(cosine(), solver=FEW, labels="joint")
    two = staged(stages=(first, Adversary(l2(), solver=FEW)))(task, observations)
    assert torch.equal(two.labels, first(task, observations).labels)


def test_every_setting_goes_on_with_the_labels_that_it_found(task: Task) -> None:
    observations = observe(task, small_records(2), threat=Threat(labels="joint"))
    one = Adversary(cosine(), solver=FEW, labels="joint")(task, observations)
    other = replace(one, labels=(one.labels + 1) % 4)
    stages = [Adversary(l2(), w * tv(), solver=FEW) for w in (1e-3, 1e-2)]
    after = stage_after([one, other], stages, task, observations)
    assert torch.equal(after[0].labels, one.labels)
    assert torch.equal(after[1].labels, other.labels)


def test_a_stage_begins_where_the_last_one_ended(task: Task) -> None:
    observations = observe(task, small_records(2))
    first = Adversary(l2(relative=True), solver=adam(steps=20), start="grey")
    long = staged(stages=(first, Adversary(l2(relative=True), solver=lbfgs(steps=20))))
    assert bool((long(task, observations).log_posterior >= first(task, observations).log_posterior - 1e-6).all())
    assert long.steps == 40


def test_the_posterior_takes_the_better_guess_of_each_update(task: Task) -> None:
    observations = observe(task, small_records(2))
    judge = Adversary(l2(relative=True), 1e-6 * tv())
    poor, good = (staged(stages=(Adversary(l2(relative=True), solver=lbfgs(steps=n)),)) for n in (2, 40))
    both, alone = best_of(attacks=(poor, good), judge=judge)(task, observations), good(task, observations)
    assert torch.allclose(both.inputs, alone.inputs)


def test_a_stage_goes_on_from_the_best_of_several(task: Task) -> None:
    observations, judge = observe(task, small_records(2)), Adversary(l2(relative=True), 1e-6 * tv())
    several = best_of(attacks=tuple(Adversary(l2(relative=True), solver=lbfgs(steps=n)) for n in (2, 20)), judge=judge)
    whole = staged(stages=(several, replace(judge, solver=lbfgs(steps=10))))
    assert whole.steps == 32
    assert repr(parse(repr(whole), "attack")) == repr(whole)
    assert bool((whole(task, observations).log_posterior >= several(task, observations).log_posterior - 1e-6).all())


def test_whole_attacks_that_would_be_the_same_are_not_tried() -> None:
    """A table has no total variation to weigh."""
    table = Task(nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 3)), Domain("table", (5,), 3))
    table = replace(table, recipe=Recipe(mode="train"))
    rows = Records(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 3, table.domain)
    choice = standard(work="quick").choose(table, observe(table, rows), lambda guess, places: 0.0)
    assert (choice.tried, choice.evaluations) == (0, 0)
    assert isinstance(choice.attack, adaptive)
    (sentence,) = choice.sentences(standard(work="quick"))
    assert "nothing to choose" in sentence


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_whole_attack_without_a_score_is_never_chosen(task: Task, bad: float) -> None:
    opaque = task.protect("mixup(k=2)")
    scores = iter([bad, 0.1, 0.3, 0.2, bad])
    observations = observe(opaque, small_records(4, seed=8))
    chooser = standard(work="quick")
    choice = chooser.choose(opaque, observations, lambda guess, places: next(scores))
    assert choice.score == 0.3
    assert isinstance(choice.attack, adaptive)
    assert choice.attack.tv_weight == 1e-2


def test_the_treatments_of_a_combined_attack_are_those_of_its_parts(task: Task) -> None:
    hidden = task.protect("random_prune(p=0.5) | gaussian(std=0.01)")
    threat = Threat(labels="joint").about(hidden.nuisances)
    by_density, by_cosine = (Adversary(likelihood, solver=FEW, labels="joint") for likelihood in (density(), cosine()))
    held = replace(by_density, labels="inferred")

    def listed(attack: Attack) -> dict[str, Treatment]:
        return {treatment.address: treatment for treatment in attack.treatments(hidden, threat)}  # type: ignore[attr-defined]

    begun = listed(staged(stages=(by_cosine, held)))
    assert begun["recipe.labels"].how == "optimised"  # the first stage searched for them, the others hold them
    assert begun["random_prune.mask"].how == "summed out"
    either = listed(best_of(attacks=(by_density, by_cosine), judge=held))
    assert either["recipe.labels"].how == "optimised"
    for part in (by_density, by_cosine):
        sentence = listed(part)["random_prune.mask"].sentence.removeprefix("hidden; ")
        assert sentence in either["random_prune.mask"].sentence


def test_unknown_work_is_refused() -> None:
    with pytest.raises(DomainError, match="work"):
        standard(work="much")  # type: ignore[arg-type]
    with pytest.raises(DomainError, match="stages must be an attack"):
        staged(stages=())
