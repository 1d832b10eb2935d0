"""LRP: one hidden positive scale, and the likelihoods that do not mind it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import leakgauge as lg
from leakgauge.adversary import cosine, density, marginal, scaled_l2, through
from leakgauge.client import Recipe
from leakgauge.defenses import lrp, protection
from leakgauge.errors import DomainError, NoDensityError
from leakgauge.testing import example_update, small_records, small_task
from leakgauge.updates import Batch, stacked


def test_the_scale_is_uniform_and_one_for_the_whole_update() -> None:
    update, scales = example_update(), []
    for seed in range(400):
        out = lrp(share=2.0).perturb(update, generator=torch.Generator().manual_seed(seed))
        scale = float(out.side["scale"][""])
        scales.append(scale)
        for name, value in out.observed.items():
            assert torch.allclose(value, scale * update[name])
    assert 0 < min(scales) < 0.1
    assert 3.9 < max(scales) <= 4
    assert abs(sum(scales) / 400 - 2) < 4 * (4 / math.sqrt(12)) / 20


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
    part = guarded.training[0]
    found = marginal()(Batch.of({"u": update.unsqueeze(0)}), {"u": observed.unsqueeze(0)}, {}, guarded)
    assert float(found) == pytest.approx(integral(update, observed, 0.3, part.low, part.high), abs=1e-4)
    same = density()(Batch.of({"u": update.unsqueeze(0)}), {"u": observed.unsqueeze(0)}, {}, guarded)
    assert float(same) == float(found)


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
    side = task.protection.update.visible(observed)
    assert float(through(cosine())(truth, observed, side, task.protection)) > -1e-9


def test_a_granted_scale_is_used() -> None:
    task = small_task().protect("lrp(share=2.0)")
    records = small_records(1)
    seen = lg.observe(task, records, threat=lg.Threat(grants=frozenset({"scale"})))
    adversary = lg.adversary.Adversary(solver=lg.adversary.adam(lr=1e-12, steps=1), start="zeros")
    blind = adversary(task, lg.observe(task, records)).log_posterior
    assert not torch.allclose(adversary(task, seen).log_posterior, blind)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"share": 0.0}, r"lrp: share must lie in \(0, ∞\)"), ({"spread": 1.5}, r"lrp: spread must lie in \[0, 1\]")],
)
def test_numbers_outside_their_domain_are_refused(options: dict, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        lrp(**options)


def test_several_local_steps_are_refused() -> None:
    task = lg.Task(small_task().model, small_task().domain, Recipe(shares="change", local_steps=2))
    with pytest.raises(DomainError, match=r"lrp\(\): it is modelled for one local step, the recipe takes 2"):
        task.protect("lrp()")


def test_the_marginal_says_what_it_cannot_integrate() -> None:
    update = Batch.of({"u": torch.ones(1, 2)})
    for how in ("lrp() | laplace(scale=0.1)", "lrp()"):
        with pytest.raises(NoDensityError, match=r"is integrated out for gaussian\(\) alone"):
            marginal()(update, {"u": torch.ones(1, 2)}, {}, protection(how))
