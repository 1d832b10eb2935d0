"""LRP: a hidden positive scale of every local step, and the likelihoods that do not mind it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

import leakgauge as lg
from leakgauge.adversary import cosine, density, marginal, scaled_l2, through
from leakgauge.client import Recipe
from leakgauge.defenses import lrp, protection
from leakgauge.errors import DomainError, NoDensityError
from leakgauge.testing import small_records, small_task
from leakgauge.updates import Batch, stacked


def test_the_scale_of_every_step_is_uniform_and_independent() -> None:
    part = lrp(share=2.0)
    scales = torch.stack([part.draw(3, generator=torch.Generator().manual_seed(seed))["scale"] for seed in range(400)])
    assert scales.shape == (400, 3)
    for column in scales.T:
        assert 0 < float(column.min()) < 0.1
        assert 3.9 < float(column.max()) <= 4
        assert abs(float(column.mean()) - 2) < 4 * (4 / math.sqrt(12)) / 20
    correlations = torch.corrcoef(scales.T)[~torch.eye(3, dtype=torch.bool)]
    assert float(correlations.abs().max()) < 4 / 20


@pytest.mark.parametrize("shares", ["gradient", "change"])
def test_with_one_local_step_it_is_one_scale_of_the_whole_update(shares: str) -> None:
    plain = small_task()
    task = lg.Task(plain.model, plain.domain, Recipe(shares=shares))  # type: ignore[arg-type]
    records, grant = small_records(1), lg.Threat(grants=frozenset({"lrp.scale"}))
    (perturbed,) = lg.observe(task.protect("lrp(share=2.0)"), records, threat=grant)
    scale = perturbed.rounds[0].granted["lrp.scale"]
    assert isinstance(scale, Tensor)
    assert scale.shape == (1,)
    for name, value in task.update(records).items():
        torch.testing.assert_close(perturbed.rounds[0].observed[name], scale.double() * value, rtol=1e-9, atol=1e-15)


def test_several_local_steps_are_a_loop_with_a_rate_of_its_own_for_each() -> None:
    """Momentum, weight decay and slices too, by autograd and hand-written SGD."""
    plain = small_task()
    recipe = Recipe(batch=4, shares="change", local_steps=3, minibatch=2, momentum=0.9, weight_decay=0.1)
    task = lg.Task(plain.model, plain.domain, recipe).protect("lrp(share=2.0)")
    records = small_records(4)
    (seen,) = lg.observe(task, records, threat=lg.Threat(grants=frozenset({"scale"})))
    scale = seen.rounds[0].granted["lrp.scale"]
    assert isinstance(scale, Tensor)
    assert scale.shape == (3,)
    assert len(set(scale.tolist())) == 3
    model = copy.deepcopy(plain.model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    velocity = {name: torch.zeros_like(p) for name, p in before.items()}
    for step, rows in enumerate((slice(0, 2), slice(2, 4), slice(0, 2))):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(records.inputs[rows].double()), records.labels[rows]).backward()
        with torch.no_grad():
            for name, p in model.named_parameters():
                assert p.grad is not None
                velocity[name] = 0.9 * velocity[name] + p.grad + 0.1 * p
                p -= float(scale[step]) * recipe.learning_rate * velocity[name]
    for name, p in model.named_parameters():
        torch.testing.assert_close(seen.rounds[0].observed[name], p.detach() - before[name], rtol=1e-7, atol=1e-12)
    swapped = task.update(records, nuisances={"lrp.scale": scale.flip(0)})  # the order of the rates matters
    assert not torch.allclose(seen.rounds[0].observed["last.bias"], swapped["last.bias"], rtol=1e-3)


def integral(update: Tensor, observed: Tensor, std: float, low: float, high: float) -> float:
    s = torch.linspace(low, high, 200_001, dtype=torch.float64)
    gaps = observed.square().sum() - 2 * s * (update @ observed) + s.square() * update.square().sum()
    log_p = -gaps / (2 * std**2) - len(update) * math.log(std * math.sqrt(2 * math.pi))
    return float(log_p.logsumexp(0) - math.log(len(s)))


@pytest.mark.parametrize("scale", [0.3, 1.0, 1.9])
@pytest.mark.parametrize("how", ["lrp() | gaussian(std=0.3)", "lrp(share=1.0, spread=0.5) | gaussian(std=0.3)"])
def test_the_marginal_is_the_integral(scale: float, how: str) -> None:
    guarded = protection(how)
    update = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    noise = torch.randn(6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    observed = scale * update + 0.3 * noise
    law = guarded.training[0].law  # type: ignore[attr-defined]
    arguments = Batch.of({"u": update.unsqueeze(0)}), {"u": observed.unsqueeze(0)}, {}, guarded
    summed = float(marginal()(*arguments))
    assert summed == pytest.approx(integral(update, observed, 0.3, law.low, law.high), abs=1e-4)
    settled = density().of_hidden_scale(guarded, law)
    assert settled is not None
    likelihood, how_treated, _ = settled
    assert (likelihood, how_treated) == (marginal(std=0.3, low=law.low, high=law.high), "summed out")
    assert float(likelihood(*arguments)) == summed


def test_any_positive_scale_is_summed_over_the_half_line() -> None:
    """Without a law the measure is ds over (0, ∞), which a wide interval times its width approaches."""
    guarded = protection("gaussian(std=0.3)")
    update = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    arguments = Batch.of({"u": update.unsqueeze(0)}), {"u": 0.7 * update.unsqueeze(0)}, {}, guarded
    settled = density().of_hidden_scale(guarded, None)
    assert settled is not None
    assert settled[0] == marginal(std=0.3, low=0.0, high=math.inf)
    wide = marginal(std=0.3, low=0.0, high=50.0)
    assert float(settled[0](*arguments)) == pytest.approx(float(wide(*arguments)) + math.log(50.0), abs=1e-9)


def test_a_density_without_a_rule_leaves_the_scale_to_the_solver() -> None:
    for how in ("lrp() | clip(norm=1.0) | laplace(scale=0.1)", "lrp() | clip(norm=1.0) | gaussian(std=0.1)"):
        guarded = protection(how)
        assert density().of_hidden_scale(guarded, guarded.training[0].law) is None  # type: ignore[attr-defined]


def test_the_slope_of_the_marginal_is_right() -> None:
    guarded = protection("lrp() | gaussian(std=0.3)")
    update = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    observed = {"u": torch.ones(1, 6, dtype=torch.float64)}
    assert torch.autograd.gradcheck(
        lambda u: marginal()(Batch.of({"u": u.unsqueeze(0)}), observed, {}, guarded), (update,)
    )


def test_scale_free_likelihoods_do_not_see_it() -> None:
    task, records = small_task(), small_records(1)
    plain, hidden = (lg.observe(t, records)[0].rounds[0].observed for t in (task, task.protect("lrp(share=2.0)")))
    candidate = Batch.of(stacked([task.update(small_records(1, seed=9))]))
    one, other = ({n: v.unsqueeze(0) for n, v in seen.items()} for seen in (plain, hidden))
    nothing = protection("identity()")
    assert float(cosine()(candidate, one, {}, nothing)) == pytest.approx(float(cosine()(candidate, other, {}, nothing)))
    ratio = float(hidden["last.bias"][0] / plain["last.bias"][0])
    fitted = [float(scaled_l2()(candidate, seen, {}, nothing)) for seen in (one, other)]
    assert fitted[1] == pytest.approx(ratio**2 * fitted[0])


def test_a_pruned_update_of_hidden_scale_is_matched_at_the_fitted_scale() -> None:
    task = small_task().protect("lrp(share=2.0) | prune(p=0.8)")
    records = small_records(1)
    seen = lg.observe(task, records)[0].rounds[0].observed
    observed = {n: v.unsqueeze(0) for n, v in seen.items()}
    truth = Batch.of(stacked([task.update(records)]))
    known = task.protection.chain.visible(observed)
    settled = through(cosine()).of_hidden_scale(task.protection, None)
    assert settled[:2] == (through(cosine(), fitted=True), "optimised")
    assert float(settled[0](truth, observed, known, task.protection)) > -1e-9
    assert float(through(cosine())(truth, observed, known, task.protection)) < -1e-9  # the threshold is scaled, too


def test_a_granted_scale_is_used() -> None:
    """At the true record the update of the granted scale is what was seen; else the best scale is fitted."""
    task = small_task().protect("lrp(share=2.0)")
    records = small_records(1)
    still = lg.adversary.Adversary(solver=lg.adversary.adam(lr=1e-12, steps=1))
    (granted,) = lg.observe(task, records, threat=lg.Threat(grants=frozenset({"scale"})))
    truth = records.inputs.unsqueeze(0).double()
    assert float(still(task, [granted], begin=truth).log_posterior) > -1e-15
    scale = granted.rounds[0].granted["lrp.scale"]
    assert isinstance(scale, Tensor)
    wrong = still(task, [granted.given("lrp.scale", 2 * scale)], begin=truth).log_posterior
    square = sum(float(value.square().sum()) for value in granted.rounds[0].observed.values())
    assert float(wrong) == pytest.approx(-square, rel=1e-6)  # twice the update is one update away
    assert float(still(task, [granted.given("lrp.scale", None)], begin=truth).log_posterior) > -1e-15


@pytest.mark.parametrize(
    ("options", "says"),
    [({"share": 0.0}, r"lrp: share must lie in \(0, ∞\)"), ({"spread": 1.5}, r"lrp: spread must lie in \[0, 1\]")],
)
def test_numbers_outside_their_domain_are_refused(options: dict, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        lrp(**options)


def test_the_marginal_says_what_it_cannot_integrate() -> None:
    update = Batch.of({"u": torch.ones(1, 2)})
    for how in ("lrp() | laplace(scale=0.1)", "lrp()"):
        with pytest.raises(NoDensityError, match=r"is integrated out for Gaussian noise alone"):
            marginal()(update, {"u": torch.ones(1, 2)}, {}, protection(how))
