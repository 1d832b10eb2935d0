"""Beliefs: chains with a density in the place of chains without, and the clipping bound from the received norm."""

from __future__ import annotations

import pytest
import torch

import leakgauge as lg
from leakgauge.attacks.believed import beliefs, believed, received_norm, without_small_noise
from leakgauge.defenses import Chain, UpdatePart, gaussian, parts_of
from leakgauge.errors import DomainError
from leakgauge.expr import parse
from leakgauge.testing import has_density, small_records, small_task


def parts_by_label(update: UpdatePart) -> dict[str, UpdatePart]:
    return Chain(parts_of(update)).labelled


@pytest.mark.parametrize(
    ("how", "belief"),
    [
        ("prune(p=0.75) | gaussian(std=0.1)", "random_prune(p=0.75) | gaussian(std=0.1)"),
        (
            "random_prune(p=0.75) | clip(norm=1.0) | gaussian(std=0.1)",
            "clip(norm=2.0) | random_prune(p=0.75) | gaussian(std=0.1)",
        ),
        (
            "topk(keep=0.25) | clip(norm=1.0) | laplace(scale=0.1) | random_prune(p=0.5)",
            "clip(norm=2.0) | random_prune(p=0.75) | laplace(scale=0.1) | random_prune(p=0.5)",
        ),
        ("gaussian(std=0.3) | gaussian(std=0.4)", "identity() | gaussian(std=0.5)"),
        ("clip(norm=1.0) | gaussian(std=0.1)", "clip(norm=1.0) | gaussian(std=0.1)"),
    ],
)
def test_a_belief_has_a_density(how: str, belief: str) -> None:
    assert repr(believed(parse(how))) == belief
    assert has_density(parse(belief))


def test_the_norm_of_a_masked_update_is_what_the_belief_says() -> None:
    update = {"w": torch.randn(100_000, generator=torch.Generator().manual_seed(0))}
    true = parse("random_prune(p=0.75) | clip(norm=1.0)").release(
        update, None, generator=torch.Generator().manual_seed(1)
    )
    near = parse("clip(norm=2.0) | random_prune(p=0.75)").release(
        update, None, generator=torch.Generator().manual_seed(1)
    )
    torch.testing.assert_close(true.observed["w"], near.observed["w"], rtol=0.02, atol=0)


def test_adaptive_says_what_it_assumes() -> None:
    task = small_task().protect("prune(p=0.5) | gaussian(std=0.01)")
    with pytest.warns(UserWarning, match=r"adaptive\(\) assumes random_prune\(p=0.5\) \| gaussian"):
        lg.attacks.adaptive(steps=3)(task, lg.observe(task, small_records(1)))


def test_assuming_pays() -> None:
    data = lg.data.load("fashion_mnist_sample")
    records = data.sample(2, seed=4, split="train")
    task = lg.Task(lg.models.build("bayes_cnn", data.domain), data.domain)
    task = task.protect("random_prune(p=0.5) | clip(norm=1.0) | gaussian(std=0.0003)")
    seen = lg.observe(task, records)
    generic = lg.metrics.psnr(lg.attacks.inverting_gradients(steps=100)(task, seen).inputs[:, 0], records.inputs)
    with pytest.warns(UserWarning, match="assumes clip"):
        adaptive = lg.metrics.psnr(lg.attacks.adaptive(steps=100)(task, seen).inputs[:, 0], records.inputs)
    assert bool((adaptive - generic > 5).all())


def test_noise_that_is_small_beside_the_steps_is_left_out() -> None:
    task, records = small_task().protect("gaussian(std=0.00001) | quantise(levels=2)"), small_records(1)
    with pytest.warns(UserWarning, match=r"assumes identity\(\) \| quantise\(levels=2\): noise is small"):
        lg.attacks.adaptive(steps=3)(task, lg.observe(task, records))
    loud = small_task().protect("gaussian(std=0.1) | quantise(levels=2)")
    seen = [one.rounds[0].observed for one in lg.observe(loud, records)]
    assert without_small_noise(loud.protection.update, seen) == loud.protection.update
    for how in ("quantise()", "quantise() | gaussian(std=0.1)", "gaussian(std=0.1)"):
        assert without_small_noise(parse(how), seen) == parse(how)


def test_a_layer_that_noise_covers_is_dropped() -> None:
    task = small_task().protect("soteria(layer='middle') | gaussian(std=0.01)")
    with pytest.warns(UserWarning, match="falls back to a cosine"):
        made = lg.attacks.adaptive(steps=3)(task, lg.observe(task, small_records(1)))
    assert bool(made.inputs.isfinite().all())


@pytest.mark.parametrize("norm", [0.05, 100.0])
def test_the_bound_is_read_off_what_was_received(norm: float) -> None:
    task, records = small_task().protect(f"clip(norm={norm}) | gaussian(std=0.00001)"), small_records(2)
    for seen, record in zip(lg.observe(task, records), range(2), strict=True):
        whole = lg.updates.norm(task.update(records[[record]]))
        estimate = received_norm(seen.rounds[0].observed, gaussian(std=0.00001))
        assert estimate == pytest.approx(min(norm, float(whole)), rel=0.01)
    granted, received = (lg.attacks.adaptive(steps=40, bound=b) for b in ("granted", "received"))  # type: ignore[arg-type]
    seen = lg.observe(task, records)
    known, read = (
        lg.metrics.psnr(a(task, seen).inputs[:, 0], records.inputs.double()).mean() for a in (granted, received)
    )
    assert float(read) > float(known) - 1.0


def test_bad_settings_are_refused() -> None:
    with pytest.raises(DomainError, match="adaptive: bound must be one of granted, received"):
        lg.attacks.adaptive(bound="guessed")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "granted", "belief"),
    [
        (
            "prune(p=0.5) | random_prune(p=0.75) | clip(norm=1.0) | gaussian(std=0.1)",
            "prune.threshold",
            "prune(p=0.5) | clip(norm=2.0) | random_prune(p=0.75) | gaussian(std=0.1)",
        ),
        (
            "random_prune(p=0.3) | clip(norm=1.0) | prune(p=0.5) | gaussian(std=0.1)",
            "random_prune.mask",
            "random_prune(p=0.3) | clip(norm=1.0) | random_prune(p=0.5) | gaussian(std=0.1)",
        ),
    ],
)
def test_a_belief_leaves_what_is_granted_alone(how: str, granted: str, belief: str) -> None:
    assert repr(believed(parse(how), {granted})) == belief


@pytest.mark.parametrize(
    ("how", "granted"),
    [
        ("prune(p=0.5) | random_prune(p=0.3) | clip(norm=1.0) | gaussian(std=0.001)", "prune.threshold"),
        ("prune(p=0.5) | random_prune(p=0.3) | clip(norm=1.0) | gaussian(std=0.001)", "random_prune.mask"),
        ("prune(p=0.5) | random_prune(p=0.3) | random_prune(p=0.2) | gaussian(std=0.001)", "random_prune#2.mask"),
    ],
)
def test_a_grant_reaches_the_part_that_has_it_under_a_belief(how: str, granted: str) -> None:
    """The attack changes with the granted value, which the believed chain has under the same address."""
    task = small_task().protect(how)
    (seen,) = lg.observe(task, small_records(1), threat=lg.Threat(grants=frozenset({granted})))
    label, _, name = granted.rpartition(".")
    near = beliefs(task.protection.update, {granted})
    assert all(set(parts_by_label(one)) == set(task.protection.chain.labelled) for one in near)
    assert name in {nuisance.name for nuisance in parts_by_label(near[0])[label].nuisances}
    other = {n: torch.zeros_like(value) for n, value in dict(seen.rounds[0].granted[granted]).items()}  # type: ignore[call-overload]
    with pytest.warns(UserWarning, match=r"adaptive\(\) assumes"):
        ends = [lg.attacks.adaptive(steps=2)(task, [one]).log_posterior for one in (seen, seen.given(granted, other))]
    assert not torch.equal(*ends)


def test_labels_of_a_belief_are_those_of_the_chain() -> None:
    """A threshold that is read off keeps its address where another one before it is taken for random pruning."""
    how = "prune(p=0.3) | gaussian(std=0.001) | prune(p=0.2)"
    assert list(parts_by_label(believed(parse(how)))) == ["prune", "gaussian", "prune#2"]
