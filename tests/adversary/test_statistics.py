"""Knowledge of batch statistics: exact, proxy, infer; every problem its own; running buffers left alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.adversary import Adversary, adam, cosine, l2
from leakgauge.adversary.features import seen_of
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.paths import Loop, Vmap
from leakgauge.adversary.statistics import believed
from leakgauge.attacks import adaptive, grad_inversion
from leakgauge.client import BATCH_STATISTICS
from leakgauge.errors import DomainError, ModelError
from leakgauge.priors import batch_norm, tv
from leakgauge.types import Candidate
from leakgauge.updates import Sharing, stacked
from tests.test_batch_norm import DOMAIN, GRANTED, granted, network, records, task_of


def treatment(attack: Any, task: lg.Task, threat: lg.Threat | None = None) -> tuple[str, str]:
    (one,) = [t for t in attack.treatments(task, threat) if t.address == BATCH_STATISTICS]
    return one.how, one.sentence


@pytest.mark.parametrize("norms", ["measured", "fixed"])
def test_the_batched_path_equals_a_loop_over_problems(norms: str) -> None:
    """Values and slopes of three problems at once, each with statistics of its own, and of each by itself."""
    task = task_of()
    batches = [records(5, seed) for seed in (1, 2, 3)]
    truth = stacked([task.update(one) for one in batches])
    statistics = stacked([granted(task, one) for one in batches])
    inputs = torch.stack([records(5, seed).inputs for seed in (4, 5, 6)]).requires_grad_()
    labels = torch.stack([one.labels for one in batches])
    nuisances: dict[str, Any] = {BATCH_STATISTICS: dict(statistics)} if norms == "fixed" else {}

    def slope(path: Any) -> tuple[Tensor, Tensor]:
        batch = path.updates(Candidate(inputs, labels, nuisances), Sharing((1, 1, 1)))
        value = l2()(batch, truth, {}, task.protection)
        return value.detach(), torch.autograd.grad(value.sum(), inputs)[0]

    def alone(n: int) -> tuple[Tensor, Tensor]:
        own = {name: value[n] for name, value in statistics.items()}
        update = task.client(task.params, inputs[n], labels[n], {BATCH_STATISTICS: own} if norms == "fixed" else {})
        value = -sum((update[name] - truth[name][n]).square().sum() for name in update)
        assert isinstance(value, Tensor)
        return value.detach(), torch.autograd.grad(value, inputs)[0][n]

    plain = [alone(n) for n in range(3)]
    for path in (Ghost.of, Vmap, Loop):
        value, gradient = slope(path(task, task.params, task.buffers))
        for n, (wanted, wanted_slope) in enumerate(plain):
            # the claim is 1e-5; in float64 rounding stays far below it
            torch.testing.assert_close(value[n], wanted, rtol=1e-5, atol=0)
            assert float((gradient[n] - wanted_slope).norm() / wanted_slope.norm()) < 1e-5


def test_statistics_of_a_candidate_are_expected_where_they_are_known() -> None:
    """At the private batch the prior is 0 with granted statistics; running ones are not those of the batch."""
    task, some = task_of(), records(5)
    values = {}
    for name, threat in (("granted", GRANTED), ("hidden", lg.Threat())):
        rounds = lg.observe(task, some, threat=threat)[0].rounds

        def look(candidate: Candidate, rounds: Any = rounds) -> Any:
            belief = believed(task, rounds, candidate.inputs)
            return seen_of(task, task.params, task.buffers, candidate, believed=belief)

        candidate = Candidate(some.inputs.unsqueeze(0), some.labels.unsqueeze(0), look=look)
        values[name] = float(batch_norm()(candidate))
    assert abs(values["granted"]) < 1e-12 < -values["hidden"]
    assert values["hidden"] < -0.1


@pytest.mark.parametrize("name", ["measured", "fixed"])
def test_what_the_ghost_path_notes_is_what_a_pass_of_its_own_shows(name: str) -> None:
    """The prior, and its slope, do not depend on whether the statistics were noted in the pass that was made anyway."""
    task, some = task_of(), records(10)
    observations = lg.observe(task, some, threat=GRANTED)
    one, other = (four(name)(task, observations, path=path) for path in ("ghost", "vmap"))  # type: ignore[arg-type]
    assert (one.path, other.path) == ("ghost", "vmap")
    torch.testing.assert_close(one.log_posterior, other.log_posterior, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one.inputs, other.inputs, rtol=1e-7, atol=1e-9)
    path = Ghost.of(task, task.params, task.buffers)
    inputs = torch.stack([records(5, 7).inputs, records(5, 8).inputs]).requires_grad_()
    path.updates(Candidate(inputs, torch.stack([some.labels[:5]] * 2)), Sharing((1, 1)))
    assert path.statistics(inputs.detach()) is None  # of other inputs it says nothing
    path.updates(Candidate(inputs, torch.stack([some.labels[:5]] * 2)), Sharing((1, 1)))
    noted = path.statistics(inputs)
    assert noted is not None
    seen = seen_of(task, task.params, task.buffers, Candidate(inputs, some.labels.view(2, 5)))
    for layer, moments in seen.statistics.items():
        for ours, theirs in zip(noted[layer], moments, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_in_eval_mode_the_prior_compares_with_running_statistics() -> None:
    task, some = task_of(mode="eval"), records(5)
    candidate = Candidate(some.inputs.unsqueeze(0), some.labels.unsqueeze(0))
    seen = seen_of(task, task.params, task.buffers, candidate)
    torch.testing.assert_close(seen.expected["5"][1], task.model.state_dict()["5.running_var"] * 4 / 5)


FOUR = {
    "exact, train mode": ("measured", GRANTED),
    "exact, eval mode": ("fixed", GRANTED),
    "infer": ("measured", lg.Threat()),
    "proxy": ("fixed", lg.Threat()),
}


def four(norms: Any, steps: int = 3) -> Adversary:
    return Adversary(cosine(), 1e-3 * tv() + 1e-2 * batch_norm(), adam(lr=0.05, steps=steps), start="grey", norms=norms)


@pytest.mark.parametrize("name", FOUR)
def test_the_four_modes_name_themselves_and_leave_the_buffers_alone(name: str) -> None:
    norms, threat = FOUR[name]
    task = task_of()
    before = copy.deepcopy(task.model.state_dict())
    how, sentence = treatment(four(norms), task, threat)
    assert name in sentence
    assert (how == "granted") == (threat == GRANTED)
    result = four(norms)(task, lg.observe(task, records(10), threat=threat))
    assert result.inputs.isfinite().all()
    assert list(task.model.state_dict()) == list(before)
    for key, value in task.model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


@pytest.mark.parametrize("name", FOUR)
def test_problems_do_not_share_their_statistics(name: str) -> None:
    """An observation alone, and beside another one: the same up to rounding, each with statistics of its own."""
    norms, threat = FOUR[name]
    task = task_of()
    observations = lg.observe(task, records(10), threat=threat)
    together = four(norms)(task, observations)
    alone = four(norms)(task, observations[1:])
    # seeds differ by place, but a grey start and Adam draw nothing
    torch.testing.assert_close(together.log_posterior[1:], alone.log_posterior, rtol=1e-9, atol=1e-12)
    first = four(norms)(task, observations[:1])
    assert not torch.allclose(first.inputs, alone.inputs)


def test_known_statistics_are_used_and_hidden_ones_are_not() -> None:
    task, some = task_of(), records(5)
    (hidden,), (told,) = lg.observe(task, some), lg.observe(task, some, threat=GRANTED)
    wrong = told.given(BATCH_STATISTICS, {name: value + 1 for name, value in granted(task, some).items()})
    for norms in ("measured", "fixed"):
        values = [four(norms)(task, [one]).log_posterior for one in (hidden, told, wrong)]
        assert len({round(float(value), 9) for value in values}) == 3


def test_what_shared_buffers_leak_counts_like_a_grant() -> None:
    task, some = task_of(shares_buffers=True), records(5)
    leaked, told = lg.observe(task, some), lg.observe(task, some, threat=GRANTED)
    assert treatment(four("measured"), task)[0] == "read off"
    for norms in ("measured", "fixed"):
        values = [four(norms)(task, seen).log_posterior for seen in (leaked, told)]
        torch.testing.assert_close(*values, rtol=1e-6, atol=1e-9)


def test_adaptive_says_what_it_does_about_batch_statistics() -> None:
    task = task_of()
    assert treatment(adaptive(), task) == (
        "optimised",
        "hidden; measured on the candidate, drawn toward the running ones (infer)",
    )
    assert "exact, train mode" in treatment(adaptive(), task, GRANTED)[1]
    assert "batch_norm()" in str(adaptive().against(task))
    shared = task_of(shares_buffers=True)
    assert "shared running statistics give them away" in str(adaptive().against(shared))
    without = task_of(network(track_running_stats=False))
    assert treatment(adaptive(), without) == ("optimised", "hidden; measured on the candidate (infer)")
    for one in (task, shared, without):
        assert adaptive(steps=2)(one, lg.observe(one, records(5))).inputs.isfinite().all()


def test_many_local_steps_take_the_joined_statistics() -> None:
    task = task_of(local_steps=3, shares="change", minibatch=2, batch=6)
    observations = lg.observe(task, records(6), threat=GRANTED)
    for norms in ("measured", "fixed"):
        assert four(norms, steps=2)(task, observations).inputs.isfinite().all()
    with pytest.warns(lg.errors.AssumptionWarning, match="one gradient on the way"):
        assert adaptive(steps=2, unroll=1)(task, observations).inputs.isfinite().all()


def test_batch_norm_modes_on_a_model_without_batch_norm_are_refused() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).double()
    for task, why in ((task_of(flat), "no such layer"), (task_of(mode="eval"), "eval mode")):
        with pytest.raises(ModelError, match=why):
            four("fixed")(task, lg.observe(task, records(5)))
    with pytest.raises(DomainError, match="has no batch norm"):
        four("measured")(task_of(flat), lg.observe(task_of(flat), records(5)))


def test_norms_without_running_statistics_ask_for_a_grant() -> None:
    task = task_of(network(track_running_stats=False))
    hidden, told = lg.observe(task, records(5)), lg.observe(task, records(5), threat=GRANTED)
    with pytest.raises(ModelError, match="keep no running statistics"):
        four("fixed")(task, hidden)
    with pytest.raises(DomainError, match="keeps no running statistics"):
        four("measured")(task, hidden)
    assert four("fixed")(task, told).inputs.isfinite().all()


def test_granted_statistics_of_another_shape_are_refused() -> None:
    task = task_of()
    (told,) = lg.observe(task, records(5), threat=GRANTED)
    short = told.given(BATCH_STATISTICS, {name: v[:, :1] for name, v in granted(task, records(5)).items()})
    with pytest.raises(lg.errors.ObservationError, match="has shape"):
        four("fixed")(task, [short])


def test_grad_inversion_leaves_the_running_statistics_alone() -> None:
    task = task_of()
    before = copy.deepcopy(task.model.state_dict())
    attack = grad_inversion(steps=4, seeds=2, meetings=1)
    result = attack(task, lg.observe(task, records(10)))
    assert result.inputs.shape == (2, 5, *DOMAIN.shape)
    assert not result.notes
    for key, value in task.model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)
    assert treatment(attack, task) == treatment(replace(attack, steps=9), task)
