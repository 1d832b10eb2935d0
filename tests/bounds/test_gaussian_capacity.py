"""Gaussian capacity: golden values, arbitrary precision, and the laws it must obey."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.bounds import log_capacity_box, log_capacity_gaussian, log_capacity_layers
from leakgauge.errors import DomainError
from leakgauge.testing.references import gaussian_log_capacity, gaussian_log_capacity_sum, relative_error
from tests.examples import examples

DIMS = st.one_of(st.integers(1, 60), st.integers(1, 10**9))
RATIOS = st.floats(-4, 4).map(lambda e: 10.0**e)


def test_golden_values() -> None:
    assert log_capacity_gaussian(7, 0.0, 1.0) == 0.0
    assert math.exp(log_capacity_gaussian(1, 1.0, 1.0)) == pytest.approx(1.79788456080287, abs=2e-14)
    assert math.exp(log_capacity_gaussian(2, 1.0, 0.5)) == pytest.approx(5.50662827463, abs=2e-12)
    assert log_capacity_gaussian(13_700, 1.0, 1.0) == pytest.approx(116.795214658, abs=1e-9)


def test_as_printed_doubles_the_tail() -> None:
    """The erratum: the printed theorem gives 2 at R = 0, and 9.0133 where the integral is 5.5066."""
    assert math.exp(log_capacity_gaussian(4, 0.0, 1.0, as_printed=True)) == pytest.approx(2.0)
    assert math.exp(log_capacity_gaussian(2, 1.0, 0.5, as_printed=True)) == pytest.approx(9.0133, abs=1e-4)
    small, large = (log_capacity_gaussian(1000, 1.0, 1.0, as_printed=flag) for flag in (False, True))
    assert large - small == pytest.approx(math.log(2))  # the ball's share is negligible there


def test_capacity_by_brute_force() -> None:
    """∫ sup_u φ over a grid of the plane, the supremum taken over a fine net of the disc."""
    sigma, step = 0.7, 0.12
    axis = np.arange(-5, 5, step)
    y = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    net = np.concatenate([r * np.stack([np.cos(angles), np.sin(angles)], -1) for r in np.linspace(0, 1, 15)])
    nearest = np.min(((y[:, None] - net[None]) ** 2).sum(-1), 1)
    total = np.exp(-nearest / (2 * sigma**2)).sum() * step**2 / (2 * np.pi * sigma**2)
    assert total == pytest.approx(math.exp(log_capacity_gaussian(2, 1.0, sigma)), rel=4e-3)


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 91, 300])
@pytest.mark.parametrize("ratio", [1e-4, 1e-2, 1.0, 30.0, 1e4])
def test_against_the_theorems_sum(dim: int, ratio: float) -> None:
    assert relative_error(log_capacity_gaussian(dim, ratio, 1.0), gaussian_log_capacity_sum(dim, ratio)) < 1e-13


@pytest.mark.parametrize("dim", [1, 2, 31, 13_700, 10**6, 10**9])
@pytest.mark.parametrize("ratio", [1e-4, 1e-2, 0.3, 10.0, 1e4])
def test_against_quadrature(dim: int, ratio: float) -> None:
    assert relative_error(log_capacity_gaussian(dim, ratio, 1.0), gaussian_log_capacity(dim, ratio)) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2, 3, 5, 10, 30, 90, 91, 300, 1000, 13_700, 10**5, 10**6, 10**7, 10**8, 10**9])
def test_against_quadrature_everywhere(dim: int) -> None:
    for exponent in np.linspace(-4, 4, 33):
        ratio = float(10.0**exponent)
        assert relative_error(log_capacity_gaussian(dim, ratio, 1.0), gaussian_log_capacity(dim, ratio)) < 1e-12


def test_the_two_regimes_meet() -> None:
    """Around a √(p + 1) = ½ the formula changes; its value must not."""
    for dim in (1, 10, 1000, 10**9):
        a = 0.5 / math.sqrt(dim + 1)
        low, high = (log_capacity_gaussian(dim, a * (1 + s * 1e-13), 1.0) for s in (-1, 1))
        assert high == pytest.approx(low, rel=1e-12)


def test_relative_precision_near_one() -> None:
    """p = 1: log(1 + a √(2/π)), down to ratios whose square underflows."""
    for a in (1e-300, 1e-100, 1e-9, 1e-4):
        assert log_capacity_gaussian(1, a, 1.0) == pytest.approx(math.log1p(a * math.sqrt(2 / math.pi)), rel=1e-13)


@examples(700)
@given(DIMS, RATIOS, st.floats(1.001, 3.0))
def test_monotone_and_at_least_one(dim: int, ratio: float, more: float) -> None:
    here = log_capacity_gaussian(dim, ratio, 1.0)
    assert here >= 0
    assert log_capacity_gaussian(dim, ratio * more, 1.0) > here
    assert log_capacity_gaussian(dim, ratio, more) < here
    assert log_capacity_gaussian(dim + 1 + dim // 1000, ratio, 1.0) > here


@examples(300)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), RATIOS)
def test_layers_are_a_product_inside_two_balls(dims: list[int], ratio: float) -> None:
    found = log_capacity_layers(dims, ratio, 1.0)
    assert found.product == pytest.approx(sum(log_capacity_gaussian(d, ratio, 1.0) for d in dims))
    assert found.product <= found.sqrt_ball * (1 + 1e-12)
    assert found.sqrt_ball <= found.sum_ball * (1 + 1e-12)


def test_layers_golden() -> None:
    found = log_capacity_layers([2, 2], 1.0, 0.5)
    values = [math.exp(v) for v in (found.product, found.sqrt_ball, found.sum_ball)]
    assert values == pytest.approx([30.32, 40.50, 104.6], rel=1e-3)


def test_entry_by_entry_clipping_is_the_finest_product() -> None:
    assert log_capacity_box(5, 1.0, 0.5) == pytest.approx(log_capacity_layers([1] * 5, 1.0, 0.5).product)
    assert log_capacity_box(5, 1.0, 0.5) > log_capacity_gaussian(5, 1.0, 0.5)


def test_a_mean_of_l_with_noise_sigma_over_l() -> None:
    assert log_capacity_gaussian(100, 1.0, 2.0, group=8) == pytest.approx(log_capacity_gaussian(100, 1.0, 2.0 / 8))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1.0, 1.0), ["Gaussian capacity", "dim", "integer ≥ 1", "got 0"]),
        ((2.0, 1.0, 1.0), ["dim", "integer ≥ 1", "got 2.0"]),
        ((True, 1.0, 1.0), ["dim", "got True"]),
        ((3, -1.0, 1.0), ["Gaussian capacity", "clip", "[0, ∞)", "got -1.0"]),
        ((3, math.nan, 1.0), ["clip", "[0, ∞)", "got nan"]),
        ((3, 1.0, 0.0), ["Gaussian capacity", "sigma", "(0, ∞)", "got 0.0"]),
        ((3, 1.0, math.nan), ["sigma", "got nan"]),
        ((3, 1.0, math.inf), ["sigma", "got inf"]),
        ((3, 1e300, 1e-300), ["clip/sigma", "finite"]),
    ],
)
def test_bad_input_says_formula_domain_value(arguments: tuple[int, float, float], words: list[str]) -> None:
    with pytest.raises(DomainError) as caught:
        log_capacity_gaussian(*arguments)
    for word in words:
        assert word in str(caught.value)


def test_bad_layers() -> None:
    with pytest.raises(DomainError, match="non-empty"):
        log_capacity_layers([], 1.0, 1.0)
    with pytest.raises(DomainError, match="one per layer"):
        log_capacity_layers([1, 2], [1.0], 1.0)


@pytest.mark.parametrize("dim", [1, 13_700, 10**9])
def test_speed(dim: int) -> None:
    """No work that grows with the dimension; 5 ms on one machine is a row of the evidence."""
    start = time.process_time()
    log_capacity_gaussian(dim, 1.0, 0.3)
    assert time.process_time() - start < 0.1
