"""Rounds, pruning and sets: capacities built from capacities."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from leakgauge.bounds import (
    compose,
    log_capacity_box,
    log_capacity_gaussian,
    log_capacity_points,
    log_capacity_pruned,
    log_capacity_set,
    log_capacity_sparse,
    log_capacity_vmf,
    repeat,
    success_ceiling,
)
from leakgauge.defenses.update.vmf_math import log_peak
from leakgauge.errors import DomainError
from tests.examples import examples

RATIOS = st.floats(-4, 4).map(lambda e: 10.0**e)


def test_vmf_capacity_is_the_peak() -> None:
    assert (
        log_capacity_vmf(3, 1.0) == log_peak(3, 1.0) == pytest.approx(0.838560638428804, abs=3e-15)
    )  # 15 digits, some roundings


def test_rounds_compose() -> None:
    assert compose([]) == 0
    assert compose([0.5, 1.5]) == 2
    assert repeat(0.25, 4) == compose([0.25] * 4)
    with pytest.raises(DomainError, match="log capacity"):
        compose([-0.1])
    with pytest.raises(DomainError, match="rounds"):
        repeat(1.0, -1)


@examples(300)
@given(st.integers(1, 10**6), RATIOS, st.integers(1, 100))
def test_a_frozen_update_leaks_less_than_the_composition(dim: int, ratio: float, rounds: int) -> None:
    """T looks at one update are one look with noise σ/√T: exact, and never above the product."""
    frozen = log_capacity_gaussian(dim, ratio, 1 / math.sqrt(rounds))
    assert frozen <= repeat(log_capacity_gaussian(dim, ratio, 1.0), rounds) * (1 + 1e-12)


def test_ceiling_on_success() -> None:
    assert success_ceiling(math.log(4), 0.1) == pytest.approx(0.4)
    assert success_ceiling(1e6, 0.1) == 1
    assert success_ceiling(1e6, 0.0) == 0


def brute_pruned(dim: int, ratio: float, keep: float) -> float:
    kept = [0.0] + [log_capacity_gaussian(k, ratio, 1.0) for k in range(1, dim + 1)]
    return float(special.logsumexp(stats.binom.logpmf(np.arange(dim + 1), dim, keep) + np.array(kept)))


@pytest.mark.parametrize("dim", [1, 2, 40, 700])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_pruned_is_a_binomial_mean(dim: int, ratio: float) -> None:
    for keep in (1e-6, 0.1, 0.5, 0.99):
        assert log_capacity_pruned(dim, ratio, 1.0, keep) == pytest.approx(
            brute_pruned(dim, ratio, keep), rel=1e-10, abs=1e-11
        )


def test_pruned_sum_and_integral_agree() -> None:
    """At p = 4000 the window is summed as an integral; the brute sum has every term."""
    assert log_capacity_pruned(4000, 3.0, 1.0, 0.5) == pytest.approx(brute_pruned(4000, 3.0, 0.5), rel=1e-11)


@examples(200)
@given(st.integers(1, 10**9), RATIOS, st.floats(0.001, 0.999))
def test_pruning_never_raises_it(dim: int, ratio: float, keep: float) -> None:
    pruned = log_capacity_pruned(dim, ratio, 1.0, keep)
    # Jensen does not apply (C is not concave in k), but k ≤ p does; more kept, more leaked
    assert 0 <= pruned <= log_capacity_gaussian(dim, ratio, 1.0) * (1 + 1e-12)
    assert pruned <= log_capacity_pruned(dim, ratio, 1.0, (1 + keep) / 2) * (1 + 1e-12)


def test_pruned_ends() -> None:
    assert log_capacity_pruned(50, 2.0, 1.0, 1.0) == log_capacity_gaussian(50, 2.0, 1.0)
    assert log_capacity_pruned(50, 2.0, 1.0, 0.0) == 0
    assert log_capacity_pruned(50, 0.0, 1.0, 0.5) == 0
    with pytest.raises(DomainError, match="keep"):
        log_capacity_pruned(50, 1.0, 1.0, 1.1)


def test_a_hidden_mask_leaks_no_more() -> None:
    """p = 2 on a grid: ∫ sup_u Σ_m P(m) φ(y − m⊙u) dy against the known mask; equal for p = 1."""
    sigma, keep, step = 0.6, 0.5, 0.15
    axis = np.arange(-4, 4, step)
    y = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 1, 2)
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    net = np.concatenate([r * np.stack([np.cos(angles), np.sin(angles)], -1) for r in np.linspace(0, 1, 12)])
    mixture = sum(
        keep ** sum(m) * (1 - keep) ** (2 - sum(m)) * np.exp(-((y - net * np.array(m)) ** 2).sum(-1) / (2 * sigma**2))
        for m in [(0, 0), (0, 1), (1, 0), (1, 1)]
    )
    hidden = np.asarray(mixture).max(1).sum() * step**2 / (2 * np.pi * sigma**2)
    known = math.exp(log_capacity_pruned(2, 1.0, sigma, keep))
    assert 1 < hidden < known


@given(st.integers(1, 1000), st.integers(0, 1000), RATIOS)
def test_chosen_coordinates_never_beat_all(dim: int, kept: int, ratio: float) -> None:
    sparse = log_capacity_sparse(dim, kept, ratio, 1.0)
    assert 0 <= sparse <= log_capacity_gaussian(dim, ratio, 1.0)
    if 0 < kept <= dim:  # at least what is known in advance to be sent
        assert sparse >= log_capacity_gaussian(kept, ratio, 1.0) * (1 - 1e-12)


def test_two_points() -> None:
    """C = 2Φ(distance/2σ), inside the interval; the interval is honest about its draws."""
    points = np.array([[-1.0, 0.0, 2.0], [1.0, 0.0, 2.0]])
    found = log_capacity_points(points, 0.8, rng=np.random.default_rng(0), draws=20_000)
    exact = math.log(2 * stats.norm.cdf(1 / 0.8))
    assert found.low <= exact <= found.high
    assert found.low <= found.log <= found.high
    assert found.high - found.low < 0.03


def test_points_in_many_dimensions_are_points_in_their_span() -> None:
    """Rotated into 5,000 dimensions, the same rows have the same capacity; extremes are 1 and N."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(8, 3))
    basis, _ = np.linalg.qr(rng.normal(size=(5000, 3)))
    here, there = (
        log_capacity_points(p, 1.0, rng=np.random.default_rng(1), draws=20_000) for p in (flat, flat @ basis.T)
    )
    assert max(here.low, there.low) <= min(here.high, there.high)
    assert log_capacity_points(flat, 1e-3, rng=rng).log == pytest.approx(math.log(8))
    assert log_capacity_points(flat, 1e6, rng=rng).log == pytest.approx(0, abs=1e-4)


def test_points_stay_below_the_ball_that_holds_them() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(64, 4))
    points /= np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True))
    for sigma in (0.2, 0.5, 2.0):
        assert log_capacity_points(points, sigma, rng=rng).low <= log_capacity_gaussian(4, 1.0, sigma)


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_a_box_by_monte_carlo(dim: int) -> None:
    def distance(y: np.ndarray) -> np.ndarray:
        return np.linalg.norm(np.maximum(np.abs(y) - 1, 0), axis=1)

    found = log_capacity_set(distance, dim, math.sqrt(dim), 0.6, rng=np.random.default_rng(0))
    assert found.low <= log_capacity_box(dim, 1.0, 0.6) + 1e-9
    assert found.high >= log_capacity_box(dim, 1.0, 0.6) - 1e-9
    assert found.high <= log_capacity_gaussian(dim, math.sqrt(dim), 0.6) + 1e-12


def test_a_ball_inside_a_larger_one_by_monte_carlo() -> None:
    def distance(y: np.ndarray) -> np.ndarray:
        return np.maximum(np.linalg.norm(y, axis=1) - 1, 0)

    found = log_capacity_set(distance, 3, 1.4, 0.5, rng=np.random.default_rng(0))
    assert found.low <= log_capacity_gaussian(3, 1.0, 0.5) <= found.high


def test_a_distance_that_cannot_be() -> None:
    with pytest.raises(DomainError, match="enlarge radius"):
        log_capacity_set(lambda y: np.zeros(len(y)), 2, 1.0, 1.0, rng=np.random.default_rng(0))
    with pytest.raises(DomainError, match="points"):
        log_capacity_points(np.array([1.0]), 1.0, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    "formula",
    [lambda: log_capacity_pruned(10**9, 1.0, 0.3, 0.1), lambda: log_capacity_vmf(10**9, 1e7)],
    ids=["pruned", "vmf"],
)
def test_speed_at_a_billion_parameters(formula: Callable[[], float]) -> None:
    """No work that grows with the dimension; 5 ms on one machine is a row of the evidence."""
    start = time.process_time()
    formula()
    assert time.process_time() - start < 0.1
