"""Per-example clipping: DP-SGD's client, its density for an adversary, and where it makes no sense."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge import bounds
from leakgauge.adversary import density
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.paths import Loop, Vmap
from leakgauge.client import Recipe
from leakgauge.errors import DomainError, ModelError
from leakgauge.testing import small_records, small_task
from leakgauge.types import Candidate
from leakgauge.updates import Sharing, norm, stacked

CLIP = "clip(norm=0.05, per='example')"


def dp_task(batch: int = 3, how: str = f"{CLIP} | gaussian(std=0.01)", reduction: str = "mean") -> lg.Task:
    plain = small_task()
    recipe = Recipe(batch=batch, reduction=reduction, loss=plain.recipe.loss)  # type: ignore[arg-type]
    return lg.Task(plain.model, plain.domain, recipe).protect(how)


def by_hand(task: lg.Task, records: lg.Records, clip: float) -> dict[str, torch.Tensor]:
    """Lines 5 to 9 of Algorithm 1, one example at a time."""
    each = [
        lg.Task(task.model, task.domain, Recipe(loss=task.recipe.loss)).update(records[[i]])
        for i in range(len(records))
    ]
    total = {name: torch.zeros_like(value) for name, value in each[0].items()}
    for g in each:
        scale = max(1.0, float(norm(g)) / clip)
        total = {name: value + g[name] / scale / len(records) for name, value in total.items()}
    return total


@pytest.mark.parametrize("batch", [1, 3])
def test_what_leaves_is_the_mean_of_clipped_examples(batch: int) -> None:
    task, records = dp_task(batch, CLIP), small_records(batch)
    seen = lg.observe(task, records)[0].rounds[0].observed
    for name, value in by_hand(task, records, 0.05).items():
        assert torch.allclose(seen[name], value, rtol=1e-5, atol=1e-8)
    summed = lg.observe(dp_task(batch, CLIP, "sum"), records)[0].rounds[0].observed
    assert all(torch.allclose(summed[name], batch * value, rtol=1e-5) for name, value in seen.items())


def test_one_example_is_the_whole_update() -> None:
    records = small_records(1)
    alone, whole = (lg.observe(dp_task(1, how), records)[0].rounds[0].observed for how in (CLIP, "clip(norm=0.05)"))
    assert all(torch.allclose(alone[name], whole[name], rtol=1e-5, atol=1e-9) for name in whole)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("how", [f"{CLIP} | gaussian(std=0.01)", f"{CLIP} | vmf(kappa=50.0)"])
def test_every_path_clips_the_candidates_examples(batch: int, reduction: str, how: str) -> None:
    """The density of two candidates is that of their clipped mean by hand, with the same slope on every path."""
    task = dp_task(batch, how, reduction).to(dtype=torch.float64)
    records = small_records(batch)
    seen = stacked([lg.observe(task, records)[0].rounds[0].observed])
    inputs = torch.rand(2, *records.inputs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = records.labels.expand(2, batch)
    slopes, values = [], []
    for path in (make(task, task.params, task.buffers) for make in (Loop, Vmap, Ghost.of)):
        live = inputs.clone().requires_grad_()
        value = density()(path.updates(Candidate(live, labels), Sharing((2,))), seen, {}, task.protection)
        slopes.append(torch.autograd.grad(value.sum(), live)[0])
        values.append(value.detach())
    for value, slope in zip(values[1:], slopes[1:], strict=True):
        assert torch.allclose(value, values[0], rtol=1e-9)
        assert torch.allclose(slope, slopes[0], rtol=1e-7, atol=1e-9)
    noise = lg.parse(how).parts[1]
    for n in range(2):
        made = by_hand(task, lg.Records(inputs[n], records.labels, records.domain), 0.05)
        scale = 1 if reduction == "mean" else batch
        alone = lg.updates.Batch.of(stacked([{name: scale * value for name, value in made.items()}]))
        assert float(noise.log_density(seen, alone, known={})) == pytest.approx(float(values[0][n]), rel=1e-8)


def test_a_generic_attack_does_not_know_of_it() -> None:
    task = dp_task(3).to(dtype=torch.float64)
    candidate = Candidate(
        torch.rand(1, *small_records(3).inputs.shape, dtype=torch.float64), small_records(3).labels[None]
    )
    plain = dp_task(3, "identity()").to(dtype=torch.float64)
    one, other = (Vmap(t, t.params, t.buffers).updates(candidate, Sharing((1,))).square() for t in (task, plain))
    assert torch.equal(one, other)


def test_adaptive_uses_its_density_and_comes_nearer_than_the_null() -> None:
    # examples of very different length: the generic mean is far from what was sent
    task, records = dp_task(2, "clip(norm=0.01, per='example') | gaussian(std=1e-6)"), small_records(2)
    seen = lg.observe(task, records)
    adversary = lg.attacks.adaptive(steps=60).adversary(task.protection)
    assert repr(adversary.likelihood) == "density()"
    made = adversary(task, seen)
    assert bool(made.log_posterior.isfinite().all())
    without = lg.attacks.adaptive().adversary(dp_task(2, CLIP).protection)
    assert repr(without.likelihood) == "through(likelihood=cosine())"


@pytest.mark.parametrize("batch", [1, 8])
def test_the_unit_is_a_record_and_a_batch_dilutes_it(batch: int) -> None:
    task = dp_task(batch, "clip(norm=1.0, per='example') | gaussian(std=0.5)")
    found = bounds.bound_of_task(task, delta=1e-5, guess=0.01)
    entries = sum(p.numel() for p in task.params.values())
    assert found.unit == "record"
    assert found.epsilon.value == pytest.approx(bounds.epsilon_of(0.5 * batch, delta=1e-5).epsilon)
    assert "one record is added or removed" in found.epsilon.sentence
    assert found.log_capacity.value == pytest.approx(bounds.log_capacity_gaussian(entries, 1.0, 0.5))
    wanted = bounds.gaussian_ceiling(min(1, 0.01 * batch), clip=1 / batch, sigma=0.5).value
    assert found.ceiling.value == pytest.approx(wanted)
    assert bounds.bound_of_task(dp_task(batch, "clip(norm=1.0) | gaussian(std=0.5)")).unit == "client"


def test_what_jumps_after_it_undoes_the_dilution() -> None:
    """A threshold may move by much where one record moves the mean by little; projections and masks do not."""
    clip, noise = "clip(norm=1.0, per='example')", "gaussian(std=0.5)"

    def of(text: str) -> bounds.Bound:
        return bounds.bound_of(lg.parse(text), 100, batch=8, delta=1e-5, guess=0.01)

    plain, whole = of(f"{clip} | {noise}"), of(f"clip(norm=1.0) | {noise}")
    for smooth in ("identity()", "clip(norm=0.9)", "random_prune(p=0.5)"):
        found = of(f"{clip} | {smooth} | {noise}")
        assert (found.unit, found.epsilon.value) == ("record", plain.epsilon.value)
    jumps = of(f"{clip} | prune(p=0.5) | {noise}")
    assert (jumps.unit, jumps.epsilon.value) == ("client", whole.epsilon.value)
    assert jumps.ceiling.value == whole.ceiling.value


def test_it_stands_first() -> None:
    assert lg.parse(f"identity() | {CLIP}").per_example
    with pytest.raises(DomainError, match=r"part 2, clip\(norm=0.05, per='example'\), acts on every example"):
        lg.parse(f"gaussian(std=0.1) | {CLIP}")


def test_where_examples_have_no_update_of_their_own_it_is_refused() -> None:
    plain = small_task()
    steps = Recipe(batch=4, shares="change", local_steps=2, loss=plain.recipe.loss)
    with pytest.raises(ModelError, match="2 local steps"):
        lg.Task(plain.model, plain.domain, steps).protect(CLIP)
    shape = plain.domain.shape
    model = nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(math.prod(shape)), nn.Linear(math.prod(shape), plain.domain.classes)
    )
    with pytest.raises(ModelError, match="normalises over the batch"):
        lg.Task(model, plain.domain, Recipe(batch=4, mode="train")).protect(CLIP)
    lg.Task(model, plain.domain, Recipe(batch=4)).protect(CLIP)
    with pytest.raises(ModelError, match="needs the examples"):
        lg.parse(CLIP).release(plain.params, None, generator=torch.Generator())
