"""From observations to problems and back: independence, sweeps, restarts, chunks, rounds, bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from leakgauge.adversary import (
    Adversary,
    Reconstruction,
    adam,
    attack,
    ball,
    cosine,
    cosine_decay,
    density,
    exponential,
    l1,
    l2,
    lbfgs,
    momentum,
    ramp,
    step_decay,
    warmup,
)
from leakgauge.adversary.memory import activations
from leakgauge.client import LABELS, Recipe
from leakgauge.errors import DomainError, NoDensityError, ObservationError
from leakgauge.expr import parse
from leakgauge.observation import Observation, Round, observe
from leakgauge.priors import gaussian_prior, norm, pixel_range, tv
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task, task_is_untouched
from leakgauge.types import Records, Threat

QUICK = Adversary(likelihood=cosine(), prior=1e-3 * tv(), solver=adam(lr=0.05, steps=15))
ROUNDING = 1e-9
"""Batches of different shape add the same terms in another order, differently on every processor: a sum over the
40,034 parameters moves by at most 40,034 eps ≈ 1e-11 of its size (float64), and a walk stretches that less than 100
times (measured: 5 times by the first-order solvers here)."""


@pytest.fixture(scope="module")
def task() -> Task:
    return small_task()


@pytest.fixture(scope="module")
def records() -> Records:
    return small_records(64)


@pytest.fixture(scope="module")
def seen(task: Task, records: Records) -> list[Observation]:
    return observe(task, records)


def same(one: Reconstruction, other: Reconstruction, tolerance: float = ROUNDING) -> None:
    torch.testing.assert_close(one.inputs, other.inputs, rtol=0, atol=tolerance)
    torch.testing.assert_close(one.log_posterior, other.log_posterior, rtol=1e-9, atol=tolerance)
    assert torch.equal(one.labels, other.labels)
    assert one.status == other.status
    for a, b in zip(one.traces, other.traces, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=tolerance)


# --- independence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["ghost", "vmap"])
@pytest.mark.parametrize("text", ["cosine", "density"])
def test_a_problem_alone_and_among_63_others_walks_the_same_way(
    text: str, path: str, task: Task, records: Records
) -> None:
    adversary = QUICK
    if text == "density":
        task = task.protect("random_prune(p=0.3) | gaussian(std=0.05)")
        adversary = replace(QUICK, likelihood=density(), solver=adam(lr=0.05, steps=12))
    seen = observe(task, records)
    together = adversary(task, seen, path=path)  # type: ignore[arg-type]
    alone = adversary(task, seen[:1], path=path)  # type: ignore[arg-type]
    torch.testing.assert_close(alone.inputs[0], together.inputs[0], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(alone.traces[0], together.traces[0], rtol=ROUNDING, atol=ROUNDING)
    assert float((together.inputs[0] - together.inputs[1]).abs().max()) > 1e-2  # the others are others


def test_restarts_and_settings_of_a_neighbour_change_nothing(task: Task, seen: list[Observation]) -> None:
    plain = QUICK(task, seen[:3])
    wider = attack([QUICK, replace(QUICK, prior=1.0 * tv())], task, seen[:3])
    same(wider[0], plain)


def test_results_come_in_the_order_of_the_observations_whatever_their_groups(task: Task, records: Records) -> None:
    known = observe(task, records[:4])
    hidden = observe(task, records[:4], threat=Threat(labels="inferred"))
    mixed = [known[0], hidden[1], known[2], hidden[3]]
    found = QUICK(task, mixed)
    assert found.labels.flatten().tolist() == records.labels[:4].tolist()
    same(found, QUICK(task, known))


def test_seeds_make_runs_reproducible(task: Task, seen: list[Observation]) -> None:
    noisy = replace(QUICK, solver=adam(steps=8, langevin=0.01), ball=ball(points=2, delta=0.1))
    torch.manual_seed(1)
    first = noisy(task, seen[:2], seed=3)
    torch.manual_seed(2)
    same(noisy(task, seen[:2], seed=3), first, 0)
    assert not torch.equal(noisy(task, seen[:2], seed=4).inputs, first.inputs)


def test_the_global_generator_is_left_alone(task: Task, seen: list[Observation]) -> None:
    state = torch.get_rng_state()
    replace(QUICK, ball=ball(points=2, delta=0.1), restarts=2)(task, seen[:2])
    assert torch.equal(torch.get_rng_state(), state)


def test_the_users_model_is_left_alone(records: Records) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 4))
    model(torch.rand(2, 1, 6, 6)).sum().backward()  # gradients and statistics that must survive
    for mode in ("train", "eval"):
        recipe = Recipe(batch=2, mode=mode)

        def everything(recipe: Recipe = recipe) -> None:
            task = Task(model, records.domain, recipe)
            seen = observe(task.protect("clip(norm=1.0) | gaussian(std=0.01)"), records[:4])
            for path in ("auto", "vmap", "loop"):
                QUICK(task, seen, path=path)

        task_is_untouched(model, everything)
        model.eval()


# --- sweeps ----------------------------------------------------------------------------------------------------------

SWEEPS: dict[str, list[Adversary]] = {
    "learning rates": [replace(QUICK, solver=adam(lr=lr, steps=10)) for lr in (0.01, 0.1, 0.3)],
    "prior weights": [replace(QUICK, prior=weight * tv()) for weight in (0.0, 1e-3, 1.0)],
    "sums": [replace(QUICK, prior=w * tv() + 0.1 * pixel_range() + v * norm()) for w, v in ((0.1, 0.0), (0.2, 0.1))],
    "prior parameters": [
        replace(QUICK, prior=0.1 * gaussian_prior(mean=m, std=s)) for m, s in ((0.5, 0.1), (0.2, 0.3))
    ],
    "step decay": [
        replace(QUICK, solver=adam(steps=10, schedule=step_decay(factor=f, at=(a,))))
        for f, a in ((0.1, 0.3), (0.5, 0.7))
    ],
    "cosine decay": [replace(QUICK, solver=adam(steps=10, schedule=cosine_decay(floor=f))) for f in (0.1, 0.5)],
    "exponential": [replace(QUICK, solver=adam(steps=10, schedule=exponential(rate=r))) for r in (0.5, 0.9)],
    "warm-up": [replace(QUICK, solver=adam(steps=10, schedule=warmup(length=n))) for n in (2, 7)],
    "product": [
        replace(QUICK, solver=momentum(steps=10, schedule=warmup(length=n) * exponential(rate=0.9))) for n in (2, 7)
    ],
    "ramp": [replace(QUICK, anneal=ramp(start=s, length=n)) for s, n in ((0.1, 5), (0.01, 10))],
    "retirement": [replace(QUICK, solver=adam(lr=lr, steps=40, patience=4, tolerance=0.05)) for lr in (0.3, 0.03)],
}


@pytest.mark.parametrize("which", SWEEPS)
def test_a_sweep_equals_separate_runs(which: str, task: Task, seen: list[Observation]) -> None:
    settings = SWEEPS[which]
    swept = attack(settings, task, seen[:3])
    for setting, found in zip(settings, swept, strict=True):
        same(found, setting(task, seen[:3]))
    assert not torch.equal(swept[0].inputs, swept[1].inputs)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ([replace(QUICK, restarts=n) for n in (1, 2)], "differ in restarts"),
        ([replace(QUICK, solver=adam(steps=n)) for n in (5, 6)], "differ in steps"),
        ([replace(QUICK, solver=adam(steps=5, betas=(b, 0.9))) for b in (0.5, 0.9)], "differ in betas"),
        ([replace(QUICK, solver=momentum(steps=5, beta=b)) for b in (0.5, 0.9)], "differ in beta"),
        ([replace(QUICK, solver=adam(steps=5, langevin=b)) for b in (0.5, 0.9)], "differ in langevin"),
        ([replace(QUICK, solver=adam(steps=5, target=b)) for b in (0.5, 0.9)], "differ in target"),
        ([replace(QUICK, solver=lbfgs(steps=5, lr=b)) for b in (0.5, 0.9)], "differ in lr"),
        ([replace(QUICK, ball=ball(points=2, delta=d)) for d in (0.1, 0.2)], "differ in ball"),
        ([QUICK, replace(QUICK, likelihood=l1())], "differ in more than numbers"),
        ([QUICK, replace(QUICK, start="grey")], "differ in more than numbers"),
        ([QUICK, replace(QUICK, solver=lbfgs())], "differ in more than numbers"),
        ([replace(QUICK, prior=(0.1, 0.2) * tv())], "weights per problem in a prior belong to no setting"),
    ],
)
def test_what_a_sweep_cannot_vary_is_refused(
    settings: list[Adversary], what: str, task: Task, seen: list[Observation]
) -> None:
    with pytest.raises(DomainError, match=what):
        attack(settings, task, seen[:1])


# --- restarts, chunks, rounds ----------------------------------------------------------------------------------------


def test_the_best_restart_by_log_posterior_wins(task: Task, seen: list[Observation]) -> None:
    rough = replace(QUICK, likelihood=l2(), prior=0.0 * tv(), solver=momentum(lr=1.0, steps=12))
    four = replace(rough, restarts=4)(task, seen[:6])
    one = rough(task, seen[:6])
    gain = four.log_posterior - one.log_posterior
    assert float(gain.min()) >= -ROUNDING  # the first of the four is the one, in a batch of 24 problems instead of 6
    assert float(gain.max()) > 1e-3
    for i in range(6):  # what is returned is what was scored
        assert float(-four.traces[i].min()) == pytest.approx(float(four.log_posterior[i]), rel=1e-12)
    assert four.evaluations == 4 * one.evaluations


def test_with_a_target_only_those_who_missed_it_start_again(task: Task, seen: list[Observation]) -> None:
    rough = replace(QUICK, likelihood=l2(), prior=0.0 * tv(), solver=lbfgs(steps=40))
    first = rough(task, seen[:6])
    middle = first.log_posterior.sort().values[2:4]
    target = -float(middle.mean())  # half of them reach it at once; none is near enough for rounding to decide
    assert float(middle.diff()) > 1e-6 * target
    some = replace(rough, solver=lbfgs(steps=40, target=target), restarts=3)(task, seen[:6])
    assert "target" in some.status
    reached = first.log_posterior >= -target
    assert some.evaluations < 3 * first.evaluations
    # the first of three walks has fewer neighbours than before once some have reached the target
    assert float((some.log_posterior - first.log_posterior)[~reached].min()) >= -ROUNDING


@pytest.mark.parametrize("likelihood", [cosine(), l2()], ids=repr)
def test_chunks_by_memory_give_the_same_results(
    likelihood: object, task: Task, seen: list[Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    adversary = replace(QUICK, likelihood=likelihood, restarts=2)  # type: ignore[arg-type]
    whole = adversary(task, seen[:5])
    sizes: list[int] = []
    solve = type(adversary.solver).solve

    def watched(self: object, problem: object, progress: object = None) -> object:
        sizes.append(problem.size)  # type: ignore[attr-defined]
        return solve(self, problem, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(type(adversary.solver), "solve", watched)
    for memory, most in ((1, 1), (8 * 60_000 * 8, 9)):
        sizes.clear()
        same(adversary(task, seen[:5], memory=memory), whole)
        assert sum(sizes) == 10
        assert max(sizes) <= most
        assert len(sizes) > 1


def test_activations_count_what_a_forward_pass_leaves(task: Task) -> None:
    assert activations(task) == 36 + 27 + 27 + 27 + 1250 + 1250 + 4


def test_rounds_at_different_parameters_add_up(task: Task, records: Records) -> None:
    later = {name: 1.3 * p for name, p in task.params.items()}
    both = observe(task, records[:2], rounds=[task.params, later])
    assert [len(o.rounds) for o in both] == [2, 2]
    adversary = replace(QUICK, likelihood=l2(), prior=0.0 * tv())
    found = adversary(task, both, path="ghost")
    same(found, adversary(task, both, path="loop"))
    first, second = (float(-adversary(task, [replace(both[0], rounds=(r,))]).traces[0][0]) for r in both[0].rounds)
    assert float(-found.traces[0][0]) == pytest.approx(first + second, rel=1e-9)


def test_observations_at_different_parameters_are_not_mixed_up(task: Task, records: Records) -> None:
    other = {**task.params, "last.weight": 5 * task.params["last.weight"]}  # the first tensors are shared
    a, b = observe(task, records[:1]), observe(task, records[1:2], rounds=[other])
    together = QUICK(task, [a[0], b[0]])
    swapped = QUICK(task, [b[0], b[0]])
    torch.testing.assert_close(together.inputs[1], swapped.inputs[1], rtol=0, atol=ROUNDING)


def test_a_granted_mask_is_used(task: Task, records: Records) -> None:
    pruned = task.protect("random_prune(p=0.5) | gaussian(std=0.001)")
    adversary = replace(QUICK, likelihood=density(), prior=0.0 * tv(), solver=lbfgs(steps=60), restarts=2)
    hidden = adversary(pruned, observe(pruned, records[:4]))
    granted = adversary(pruned, observe(pruned, records[:4], threat=Threat(grants=frozenset({"mask"}))))
    truth = records.inputs[:4].unsqueeze(1)
    errors = [float((found.inputs - truth).square().mean()) for found in (granted, hidden)]
    assert errors[0] < errors[1] / 2


def test_labels_are_optimised_jointly(task: Task, records: Records) -> None:
    seen = observe(task, records[:8], threat=Threat(labels="joint"))
    found = Adversary(likelihood=l2(), solver=lbfgs(steps=250, target=1e-9), labels="joint", restarts=3)(task, seen)
    solved = found.log_posterior > -1e-6
    assert int(solved.sum()) >= 6
    assert torch.equal(found.labels[solved].flatten(), records.labels[:8][solved])


def test_the_precision_is_the_tasks(task: Task, seen: list[Observation]) -> None:
    found = QUICK(task, seen[:1])
    assert found.inputs.dtype == found.log_posterior.dtype == torch.float64
    single = small_task(dtype=torch.float32)
    found = QUICK(single, observe(single, small_records(1)))
    assert found.inputs.dtype == found.log_posterior.dtype == torch.float32


@pytest.mark.parametrize("start", ["normal", "uniform", "grey", "zeros"])
def test_starts(start: str, task: Task, seen: list[Observation]) -> None:
    still = replace(QUICK, start=start, solver=adam(lr=1e-12, steps=1, box=False))  # type: ignore[arg-type]
    inputs = still(task, seen[:40]).inputs
    mean, spread = {"normal": (0.0, 1.0), "uniform": (0.5, 1 / math.sqrt(12)), "grey": (0.5, 0.0), "zeros": (0.0, 0.0)}[
        start
    ]
    assert float(inputs.mean()) == pytest.approx(mean, abs=0.1)
    assert float(inputs.std()) == pytest.approx(spread, abs=0.1)


def test_progress_is_reported(task: Task, seen: list[Observation]) -> None:
    calls: list[int] = []
    QUICK(task, seen[:2], progress=lambda done, total, best: calls.append(done))
    assert calls == list(range(16))


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_the_device_is_one_argument(device: str | torch.device, task: Task, seen: list[Observation]) -> None:
    same(QUICK(task, seen[:1], device=device), QUICK(task, seen[:1]))


# --- bad input -------------------------------------------------------------------------------------------------------


def _with(seen: Observation, **changes: object) -> Observation:
    return replace(seen, **changes)  # type: ignore[arg-type]


def _tampered(seen: Observation, change: Callable[[dict[str, torch.Tensor]], object]) -> Observation:
    observed = {name: value.clone() for name, value in seen.rounds[0].observed.items()}
    change(observed)
    return replace(seen, rounds=(replace(seen.rounds[0], observed=observed),))


BAD: dict[str, tuple[Callable[[Observation], Observation], str]] = {
    "nan": (
        lambda o: _tampered(o, lambda u: u["last.bias"].fill_(math.nan)),
        "observation 0, round 0: 'last.bias' has 4 values that are NaN or infinite; drop that round or client",
    ),
    "infinity": (
        lambda o: _tampered(o, lambda u: u["last.bias"][:1].fill_(math.inf)),
        "observation 0, round 0: 'last.bias' has 1 values that are NaN or infinite; drop that round or client",
    ),
    "shape": (
        lambda o: _tampered(o, lambda u: u.update({"last.bias": torch.zeros(3)})),
        "observation 0, round 0: 'last.bias' has shape (3,), the model's has (4,); give the update of this model",
    ),
    "missing": (
        lambda o: _tampered(o, lambda u: u.pop("last.bias")),
        "observation 0, round 0: parameter 'last.bias' is missing from the update; send every trained parameter",
    ),
    "extra": (
        lambda o: _tampered(o, lambda u: u.update({"lst.bias": torch.zeros(4)})),
        "observation 0, round 0: the model has no parameter 'lst.bias'; did you mean 'last.bias'?",
    ),
    "label": (lambda o: o.given(LABELS, torch.tensor([4])), "observation 0: labels span 4..4; they must lie in 0..3"),
    "negative label": (
        lambda o: o.given(LABELS, torch.tensor([-1])),
        "observation 0: labels span -1..-1; they must lie in 0..3",
    ),
    "labels": (
        lambda o: o.given(LABELS, torch.tensor([1, 2])),
        "observation 0: 2 labels for a batch of 1; give one per example",
    ),
    "a single label": (
        lambda o: o.given(LABELS, torch.tensor(1)),
        "observation 0: labels are torch.int64 of shape (); give one class number per example",
    ),
    "soft labels": (
        lambda o: o.given(LABELS, torch.tensor([0.5])),
        "observation 0: labels are torch.float32 of shape (1,); give one class number per example",
    ),
    "batch": (
        lambda o: _with(o, batch=0).given(LABELS, None),
        "observation 0: a batch of 0; an update comes from at least one example",
    ),
    "no rounds": (
        lambda o: _with(o, rounds=()),
        "observation 0: there is no round in it; give at least one observed update",
    ),
    "parameters": (
        lambda o: _with(o, rounds=(Round(o.rounds[0].observed, {"x": torch.zeros(2)}),)),
        "observation 0, round 0: its parameters are not the model's; give those it was computed at",
    ),
    "a grant of nobody": (
        lambda o: o.given("random_prune.mask", torch.ones(1)),
        "observation 0, round 0: nothing has the granted nuisance 'random_prune.mask'; ",
    ),
    "many clients": (
        lambda o: _with(o, rounds=(replace(o.rounds[0], clients=3),)),
        "observation 0, round 0: it sums 3 clients, which only exact recovery takes apart; give single updates",
    ),
}


@pytest.mark.parametrize("which", BAD)
def test_a_bad_observation_is_refused_with_where_what_and_remedy(
    which: str, task: Task, seen: list[Observation]
) -> None:
    spoil, wanted = BAD[which]
    with pytest.raises(ObservationError) as raised:
        QUICK(task, [spoil(seen[0])])
    assert wanted in str(raised.value)


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        ({"x": torch.zeros(2)}, "has other names than the update; give it for every trained"),
        (
            {name: torch.ones(5) for name in small_task().params},
            "has shape (5,) for 'first.bias' of shape (3,); give one value, or one per entry",
        ),
    ],
)
def test_a_granted_mask_must_fit_the_update(mask: dict[str, torch.Tensor], wanted: str, records: Records) -> None:
    pruned = small_task().protect("random_prune(p=0.5)")
    (seen,) = observe(pruned, records[:1])
    with pytest.raises(ObservationError) as raised:
        QUICK(pruned, [seen.given("random_prune.mask", mask)])
    assert f"observation 0, round 0: the granted 'random_prune.mask' {wanted}" in str(raised.value)


def test_all_problems_are_told_at_once(task: Task, seen: list[Observation]) -> None:
    spoiled = [BAD["nan"][0](seen[0]), seen[1], BAD["missing"][0](seen[2])]
    with pytest.raises(ObservationError) as raised:
        QUICK(task, spoiled)
    assert "observation 0, round 0" in str(raised.value)
    assert "observation 2, round 0" in str(raised.value)
    with pytest.raises(ObservationError, match=r"\(and 3 more problems\)"):
        QUICK(task, [BAD["nan"][0](seen[0])] * 8)
    with pytest.raises(ObservationError, match="there is no observation to attack; give at least one"):
        QUICK(task, [])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("adversary(restarts=0)", "adversary: restarts must be an integer ≥ 1, got 0"),
        ("adversary(labels='known')", "adversary: labels must be one of inferred, joint, got 'known'"),
        ("adversary(rule='guess')", "adversary: rule must be one of auto, bias, rows, unique, got 'guess'"),
        (
            "adversary(start='noise')",
            "adversary: start must be one of normal, uniform, grey, zeros, prior, got 'noise'",
        ),
    ],
)
def test_an_adversary_guards_its_domain(text: str, what: str) -> None:
    with pytest.raises(DomainError) as raised:
        parse(text)
    assert f"{raised.value.where}: {raised.value.what}" == what
    assert raised.value.remedy


def test_a_density_that_does_not_exist_is_said_before_anything_runs(task: Task, seen: list[Observation]) -> None:
    with pytest.raises(NoDensityError, match=r"identity\(\) has no noise; add gaussian\(\), laplace\(\) or vmf\(\)"):
        replace(QUICK, likelihood=density())(task, seen[:1])


def test_too_few_records_for_a_batch(records: Records) -> None:
    with pytest.raises(ObservationError, match="observe: 1 records do not fill a batch of 4; give more records or a"):
        observe(small_task(batch=4), records[:1])


def test_an_attack_goes_on_where_another_ended(task: Task) -> None:
    seen = observe(task, small_records(3))
    ended = QUICK(task, seen)
    rate = 1e-9
    still = replace(QUICK, solver=adam(lr=rate, steps=1), restarts=2)
    on = still(task, seen, begin=ended.inputs)
    # Adam's first step moves no pixel by more than its rate, wherever rounding carries the sign of a slope
    assert float((on.inputs - ended.inputs).abs().max()) <= 1.01 * rate
    alone = still(task, seen[2:], begin=ended.inputs[2:])
    torch.testing.assert_close(on.inputs[[2]], alone.inputs, rtol=0, atol=2.02 * rate)


def test_a_beginning_must_fit_the_observations(task: Task) -> None:
    seen = observe(task, small_records(2))
    with pytest.raises(DomainError, match=r"2 observations cannot begin at inputs of shape .*give one batch"):
        QUICK(task, seen, begin=torch.zeros(1, 1, *task.domain.shape))
