"""Trees, batches of updates, and entrywise functions that know their slope."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.testing import example_update, slope_matches_autograd
from leakgauge.updates import (
    Batch,
    Dense,
    Sharing,
    Sloped,
    Stack,
    absolute_residual,
    excess,
    masked,
    product,
    squared,
    squared_residual,
    trees,
)
from leakgauge.updates.factored import Factored

COUNTS = [(1, 1, 1), (2, 2, 2), (3, 0, 1), (0, 0, 4), (5,)]


def batch(counts: tuple[int, ...], seed: int = 0) -> tuple[Batch, dict[str, Tensor], Stack, dict[str, Tensor]]:
    """Updates, their values ``[N, …]``, observations ``[M, …]``, and the observed row of each candidate."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (3, 4), "a.bias": (3,), "scalar": ()}
    total = sum(counts)
    values = {n: torch.randn(total, *s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}
    observed = Stack(
        {n: torch.randn(len(counts), *s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}
    )
    rows = torch.tensor([m for m, count in enumerate(counts) for _ in range(count)])
    return Batch.of(values, counts), values, observed, {n: o[rows] for n, o in observed.items()}


def per_tensor(value: Callable[[str], Tensor], names: tuple[str, ...]) -> Tensor:
    """``[N, L]`` by summing over the entries of each tensor."""
    return torch.stack([value(n).reshape(len(value(n)), -1).sum(1) for n in names], 1)


@pytest.mark.parametrize("counts", COUNTS)
def test_a_batch_answers_with_the_row_of_each_candidate(counts: tuple[int, ...]) -> None:
    updates, u, observed, o = batch(counts)
    names = updates.names
    torch.testing.assert_close(updates.square(), per_tensor(lambda n: u[n].square(), names))
    torch.testing.assert_close(updates.dot(observed), per_tensor(lambda n: u[n] * o[n], names))
    torch.testing.assert_close(updates.distance(observed), per_tensor(lambda n: (u[n] - o[n]).square(), names))
    torch.testing.assert_close(updates.received(observed), per_tensor(lambda n: o[n].square(), names))
    torch.testing.assert_close(updates.received(dict(observed)), updates.received(observed))
    mixed = updates.entries(lambda a, b, c: a * b.sin() + c, observed, observed)
    torch.testing.assert_close(mixed, per_tensor(lambda n: u[n] * o[n].sin() + o[n], names))


@pytest.mark.parametrize("counts", COUNTS)
def test_scaled_mapped_only(counts: tuple[int, ...]) -> None:
    updates, u, observed, o = batch(counts)
    names, total = updates.names, sum(counts)
    one, each = torch.rand(total, dtype=torch.float64), torch.rand(total, len(names), dtype=torch.float64)
    torch.testing.assert_close(updates.scaled(one).square(), updates.square() * one.square().unsqueeze(1))
    torch.testing.assert_close(updates.scaled(each).square(), updates.square() * each.square())
    moved = updates.mapped(torch.maximum, observed)
    torch.testing.assert_close(moved.dense()["a.weight"], torch.maximum(u["a.weight"], o["a.weight"]))
    less = updates.only(["a.bias"])
    assert less.names == ("a.bias",)
    torch.testing.assert_close(less.square(), updates.square()[:, [1]])


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("positions", [1, 3])
def test_factors_are_the_matrix_they_stand_for(counts: tuple[int, ...], positions: int) -> None:
    total = sum(counts)
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(total, positions, 5, generator=generator, dtype=torch.float64).requires_grad_()
    d = torch.randn(total, positions, 4, generator=generator, dtype=torch.float64).requires_grad_()
    dense = Dense(torch.einsum("nro,nrk->nok", d, a))
    factored, sharing = Factored(a, d, torch.Size((4, 5))), Sharing(counts)
    observed = torch.randn(len(counts), 4, 5, generator=generator, dtype=torch.float64)
    received = observed.square().flatten(1).sum(1)[sharing.rows()]
    weights = torch.rand(total, generator=generator, dtype=torch.float64)
    asks: list[Callable[[Factored | Dense], Tensor]] = [
        lambda leaf: leaf.square(),
        lambda leaf: leaf.dot(observed, sharing),
        lambda leaf: leaf.distance(observed, sharing, received),
        lambda leaf: leaf.entries(squared_residual, (observed,), sharing),
        lambda leaf: leaf.entries(absolute_residual, (observed,), sharing),
        lambda leaf: leaf.entries(lambda u, o: (u * o).sin(), (observed,), sharing),
        lambda leaf: leaf.scaled(weights).entries(squared_residual, (observed,), sharing),
        lambda leaf: Batch({"w": leaf}, sharing).mapped(masked, {"w": observed}).distance({"w": observed}).squeeze(1),
        lambda leaf: Batch({"w": leaf}, sharing).mapped(torch.maximum, {"w": observed}).square().squeeze(1),
        lambda leaf: leaf.dense().value.flatten(1).sum(1),
    ]
    for ask in asks:
        found, wanted = ask(factored), ask(dense)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        slopes = [torch.autograd.grad((made * weights).sum(), (a, d), retain_graph=True) for made in (found, wanted)]
        for one, other in zip(*slopes, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_side_trees_may_be_one_number_per_tensor() -> None:
    updates, u, _, _ = batch((2, 1))
    shapes = {"a.weight": (2, 1, 1), "a.bias": (2, 1), "scalar": (2,)}
    threshold = {name: torch.rand(shape, dtype=torch.float64) for name, shape in shapes.items()}
    found = updates.entries(lambda x, t: (x.abs() < t).to(x), threshold)
    rows = torch.tensor([0, 0, 1])
    wanted = per_tensor(lambda n: (u[n].abs() < threshold[n][rows]).double(), updates.names)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "fn",
    [squared_residual, absolute_residual, squared_residual.scaled(-2.0, 0.3), absolute_residual.scaled(0.5, -1.0)],
    ids=["squared", "absolute", "squared, scaled", "absolute, scaled"],
)
@given(st.integers(0, 1000))
def test_slopes_are_autograds(fn: Sloped, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    u, o, m = (torch.randn(3, 7, generator=generator, dtype=torch.float64) for _ in range(3))
    slope_matches_autograd(fn, u, o)
    slope_matches_autograd(masked.then(fn), u, (m > 0).double(), o)
    slope_matches_autograd(excess.then(fn), u, m[:1, :1].abs(), m > 0, o)
    slope_matches_autograd(excess.then(squared), u, m[:1, :1].abs(), m > 0)
    slope_matches_autograd(masked.then(product), u, (m > 0).double(), o)


def test_sharing() -> None:
    sharing = Sharing((2, 0, 3))
    assert sharing.total == 5
    assert sharing.even is None
    assert Sharing((2, 2)).even == 2
    assert sharing.rows().tolist() == [0, 0, 2, 2, 2]
    assert list(sharing.segments()) == [(0, slice(0, 2)), (2, slice(2, 5))]
    assert sharing.only(torch.tensor([1, 4])).counts == (1, 0, 1)


def test_arithmetic_of_trees() -> None:
    update = example_update()
    flat = torch.cat([value.flatten() for value in update.values()])
    torch.testing.assert_close(trees.square(update), flat @ flat)
    torch.testing.assert_close(trees.norm(update), flat.norm())
    doubled = trees.mapped(torch.add, update, update)
    assert all(torch.equal(doubled[name], 2 * value) for name, value in update.items())
    stack = trees.stacked([update, doubled])
    assert stack["first.bias"].shape == (2, 4)
    torch.testing.assert_close(stack.squares["first.bias"][1], 4 * stack.squares["first.bias"][0])


def test_large_sums_keep_their_digits_in_float32() -> None:
    u = 1e-3 + 1e-6 * torch.rand(64, 40_000)
    total, _, factor = squared_residual.both(u.clone(), torch.zeros_like(u))
    assert float(total) == pytest.approx(float(u.double().square().sum()), rel=2e-6)
    assert factor == 2.0
    total, _, _ = absolute_residual.both(u.clone(), torch.zeros_like(u))
    assert float(total) == pytest.approx(float(u.double().sum()), rel=2e-6)
