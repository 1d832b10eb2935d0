"""Likelihoods: their laws on every path, their formulas, weights and dropped layers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.adversary import Adversary, Likelihood, Matching, cosine, density, l1, l2, marginal, scaled_l2, through
from leakgauge.adversary.solver import Adam
from leakgauge.defenses import Protection, protection
from leakgauge.errors import DomainError, ModelError, NoDensityError
from leakgauge.expr import REGISTRY, parse, read
from leakgauge.testing import CHAINS, EXAMPLES, example_update, likelihood_laws
from leakgauge.updates import Batch, Stack

OF_A_PROTECTION = ("density", "through", "marginal", "forgiving")
MATCHING = [text for name in REGISTRY["likelihood"] for text in EXAMPLES["likelihood"].get(name, ())]


def value(likelihood: Likelihood, update: dict[str, torch.Tensor], observed: dict[str, torch.Tensor]) -> float:
    one = Batch.of({name: u.unsqueeze(0) for name, u in update.items()})
    seen = Stack({name: o.unsqueeze(0) for name, o in observed.items()})
    return float(likelihood(one, seen, {}, Protection()))


def pair() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return example_update(seed=1), example_update(seed=2)


def flat(tree: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.flatten() for t in tree.values()])


@pytest.mark.parametrize("text", [text for text in MATCHING if not text.startswith(OF_A_PROTECTION)])
@pytest.mark.parametrize("batch", [1, 3])
def test_laws_of_matching_losses(text: str, batch: int) -> None:
    likelihood_laws(parse(text), batch=batch)


SLOW = "gaussian(std=0.3) | quantise(levels=3) | prune(p=0.6)"
"""A mass of intervals inside intervals: eleven seconds."""


# without noise a rounding makes far candidates impossible: forgiving() is what has slopes there, in test_rounding.py
@pytest.mark.parametrize(
    ("chain", "grants"),
    [
        pytest.param(chain, grants, marks=[pytest.mark.slow] * (chain == SLOW))
        for chain, grants in CHAINS.items()
        if not chain.startswith("quantise")
    ],
)
def test_laws_of_densities(chain: str, grants: tuple[str, ...]) -> None:
    for grant in dict.fromkeys([(), grants]):
        likelihood_laws(density(), protection=chain, grant=grant)


@pytest.mark.parametrize("inner", [l2(), cosine(), scaled_l2()], ids=repr)
@pytest.mark.parametrize(
    "chain", ["prune(p=0.7)", "random_prune(p=0.3)", "clip(norm=0.01)", "prune(p=0.5) | identity()"]
)
def test_laws_through_deterministic_parts(inner: Matching, chain: str) -> None:
    likelihood_laws(through(likelihood=inner), protection=chain)


def test_laws_under_a_hidden_scale() -> None:
    likelihood_laws(marginal(), protection="lrp(share=2.0) | gaussian(std=0.3)")
    likelihood_laws(marginal(std=0.1), protection="lrp(spread=0.5)")
    likelihood_laws(through(likelihood=cosine()), protection="lrp(share=2.0) | prune(p=0.7)")


def test_laws_of_an_assumed_density() -> None:
    likelihood_laws(density(assumed=parse("laplace(scale=0.2)")))
    likelihood_laws(density(assumed=parse("laplace(scale=0.2)"), fitted=True))


def test_a_fitted_density_is_that_at_the_scale_of_least_squares() -> None:
    update, observed = pair()
    u, o = flat(update), flat(observed)
    best = float(u @ o / (u @ u))
    noise = parse("laplace(scale=0.2)")
    moved = {name: best * one for name, one in update.items()}
    granted = value(density(assumed=noise), moved, observed)
    for scale in (1.0, 1e-3, 1e3):
        scaled = {name: scale * one for name, one in update.items()}
        assert value(density(assumed=noise, fitted=True), scaled, observed) == pytest.approx(granted, rel=1e-9)


def test_formulas() -> None:
    update, observed = pair()
    u, o = flat(update), flat(observed)
    assert value(l2(), update, observed) == pytest.approx(-float((u - o).square().sum()), rel=1e-12)
    relative = float((u - o).square().sum() / o.square().sum())
    assert value(l2(relative=True), update, observed) == pytest.approx(-relative, rel=1e-12)
    assert value(l1(), update, observed) == pytest.approx(-float((u - o).abs().sum()), rel=1e-12)
    cos = float(u @ o / (u.norm() * o.norm()))
    assert value(cosine(), update, observed) == pytest.approx(cos - 1, rel=1e-12)
    best = max(0.0, float(u @ o / (u @ u)))
    assert value(scaled_l2(), update, observed) == pytest.approx(-float((best * u - o).square().sum()), rel=1e-12)


def test_a_negative_scale_is_not_allowed() -> None:
    update, _ = pair()
    away = {name: -u for name, u in update.items()}
    assert value(scaled_l2(), update, away) == pytest.approx(-float(flat(update).square().sum()), rel=1e-12)


@given(st.floats(1e-3, 1e3))
def test_scale_free_losses_do_not_see_a_positive_scale(scale: float) -> None:
    update, observed = pair()
    scaled = {name: scale * u for name, u in update.items()}
    for likelihood in (cosine(), scaled_l2()):
        assert value(likelihood, scaled, observed) == pytest.approx(value(likelihood, update, observed), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-14, 1e-6, 1e6, 1e14])
def test_a_cosine_survives_updates_of_any_size_in_float32(scale: float) -> None:
    update, observed = pair()
    small = {name: (scale * u).float() for name, u in update.items()}
    seen = {name: (scale * o).float() for name, o in observed.items()}
    assert value(cosine(), small, seen) == pytest.approx(value(cosine(), update, observed), rel=1e-5)


@pytest.mark.parametrize("likelihood", [l2(), l1(), cosine(), scaled_l2()], ids=repr)
def test_nothing_beats_the_truth(likelihood: Likelihood) -> None:
    update, other = pair()
    assert value(likelihood, update, update) == pytest.approx(0, abs=1e-12)
    assert value(likelihood, other, update) < -1e-3


@pytest.mark.parametrize("likelihood", [l2(), l1(), cosine(), scaled_l2()], ids=repr)
def test_an_update_of_zeros_has_a_value_and_a_slope(likelihood: Likelihood) -> None:
    u = torch.zeros(2, 3, requires_grad=True)
    made = likelihood(Batch.of({"w": u}), Stack({"w": torch.ones(2, 3)}), {}, Protection())
    (slope,) = torch.autograd.grad(made.sum(), u)
    assert made.isfinite().all()
    assert slope.isfinite().all()


def test_weights_by_layer_by_tensor_and_exponential() -> None:
    update, observed = pair()
    parts = {name: float((update[name] - observed[name]).square().sum()) for name in update}
    first, last = (sum(v for n, v in parts.items() if n.startswith(layer)) for layer in ("first", "last"))
    assert value(l2(weights={"first": 3.0}), update, observed) == pytest.approx(-(3 * first + last))
    assert value(l2(weights={"last.bias": 0.0}), update, observed) == pytest.approx(
        -(first + last - parts["last.bias"])
    )
    assert value(l2(weights="exponential"), update, observed) == pytest.approx(-(first + math.exp(-1) * last))


def test_weights_act_on_products_and_norms_of_a_cosine() -> None:
    update, observed = pair()
    w = torch.cat([torch.full((t.numel(),), 2.0 if name.startswith("first") else 1.0) for name, t in update.items()])
    u, o = flat(update), flat(observed)
    wanted = float((w * u * o).sum() / ((w * u * u).sum() * (w * o * o).sum()).sqrt()) - 1
    assert value(cosine(weights={"first": 2.0}), update, observed) == pytest.approx(wanted, rel=1e-9)


def test_dropped_layers_do_not_count() -> None:
    update, observed = pair()
    less = {name: u for name, u in update.items() if not name.startswith("first")}
    for make in (l2, l1, cosine, scaled_l2):
        whole = value(make(drop=("first",)), update, observed)
        assert whole == pytest.approx(value(make(), less, {n: observed[n] for n in less}), rel=1e-12)
    assert value(l2(drop=("first.bias",)), update, observed) > value(l2(), update, observed)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"drop": ("frist.bias",)}, "no layer or tensor 'frist.bias'; did you mean 'first.bias'?"),
        ({"weights": {"nothing at all": 1.0}}, "no layer or tensor 'nothing at all'; known: "),
        ({"drop": ("first", "last")}, "every tensor is dropped; drop fewer layers"),
        ({"drop": ("fir",)}, "no layer or tensor 'fir'"),
    ],
)
def test_layers_that_are_not_there_are_named(options: dict[str, Any], what: str) -> None:
    update, observed = pair()
    with pytest.raises(ModelError) as raised:
        value(l2(**options), update, observed)
    assert str(raised.value).startswith(f"{l2(**options)!r}: ")
    assert what in str(raised.value)


def test_through_refuses_what_is_no_map() -> None:
    update, observed = pair()
    one = Batch.of({name: u.unsqueeze(0) for name, u in update.items()})
    seen = Stack({name: o.unsqueeze(0) for name, o in observed.items()})
    with pytest.raises(NoDensityError, match=r"gaussian\(std=0.1\) did .* is random or hidden; use density\(\)"):
        through()(one, seen, {}, protection("gaussian(std=0.1)"))


def test_of_a_pruned_zero_only_the_excess_counts() -> None:
    observed = Stack({"w": torch.tensor([[0.0, 0.0, 2.0]])})
    update = Batch.of({"w": torch.tensor([[0.5, -3.0, 1.5]])})
    pruned = protection("prune(p=0.6)")
    known = pruned.chain.visible(observed)  # the smallest survivor is 2
    assert set(known) == {"prune.threshold", "prune.kept"}
    assert float(through()(update, observed, known, pruned)) == pytest.approx(-(0.0 + 1.0 + 0.25))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("l1(weights='exp', drop='first')", ("weights", "drop")),
        ("l2(weights={'first': -1.0, 'last': 'a'}, relative=2)", ("first", "last", "relative")),
        ("cosine(weights=3)", ("weights",)),
        ("density(assumed=tv(), fitted=1)", ("assumed", "fitted")),
        ("density(assumed=mixup())", ("assumed",)),
        ("marginal(std=-1, low='a', high=-2)", ("std", "low", "high")),
        ("marginal(low=3, high=2)", ("high",)),
        ("through(likelihood=adam(), fitted='yes')", ("likelihood", "fitted")),
        ("adversary(start='gray', norms='x', labels='q')", ("start", "norms", "labels")),
        ("adversary(likelihood=3, prior='a', solver=None)", ("likelihood", "prior", "solver")),
        ("adversary(anneal=adam(), ball=cosine(), restarts=0, hidden=-1)", ("anneal", "ball", "restarts", "hidden")),
    ],
)
def test_every_wrong_setting_is_named_at_once(text: str, settings: tuple[str, ...]) -> None:
    faults = read(text).faults
    assert all(isinstance(fault, DomainError) and fault.remedy for fault in faults)
    assert len(faults) == len(settings)
    for name in settings:
        assert any(name in fault.what for fault in faults)


def test_a_class_is_no_part() -> None:
    with pytest.raises(DomainError, match="solver must be a solver"):
        Adversary(solver=Adam)  # type: ignore[arg-type]
