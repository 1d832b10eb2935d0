"""Laplace capacity: the derivation step by step, then the value."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.bounds import log_capacity_laplace
from leakgauge.errors import DomainError
from tests.examples import examples


@examples(300)
@given(st.integers(1, 6), st.floats(0.1, 3.0), st.integers(0, 10**6))
def test_the_nearest_point_is_on_the_ray(dim: int, radius: float, seed: int) -> None:
    """The L1 distance to the L1 ball is ‖y‖₁ − R: reached by scaling y, beaten by no point of the ball."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=dim) * 3
    norm = np.abs(y).sum()
    claimed = max(norm - radius, 0)
    scaled = y * min(1, radius / norm)
    assert np.abs(y - scaled).sum() == pytest.approx(claimed, abs=1e-12)
    others = rng.normal(size=(200, dim))
    others *= radius * rng.random((200, 1)) / np.abs(others).sum(1, keepdims=True)
    assert (np.abs(y - others).sum(1) >= claimed - 1e-12).all()


def test_numerical_integration_in_one_to_three_dimensions() -> None:
    radius, scale = 1.0, 0.6

    # the positive orthant, by panels of Gauss-Legendre nodes; the kink at ‖y‖₁ = R costs the accuracy, not the edge
    x, w = np.polynomial.legendre.leggauss(20)
    cuts = np.concatenate([np.linspace(0, 1, 5), np.linspace(1.5, 12, 9)])
    middle, half = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts) / 2
    nodes = (middle[:, None] + half[:, None] * x).ravel()
    mass = (half[:, None] * w).ravel() / scale

    def sup(norm: np.ndarray) -> np.ndarray:
        return np.exp(-np.maximum(norm - radius, 0) / scale)

    pair = nodes[:, None] + nodes[None]
    one = mass @ sup(nodes)
    two = mass @ sup(pair) @ mass
    three = sum(m * (mass @ sup(pair + z) @ mass) for z, m in zip(nodes, mass, strict=True))
    for dim, total in enumerate((one, two, three), start=1):
        assert math.exp(log_capacity_laplace(dim, radius, scale)) == pytest.approx(total, rel=2e-4)


def test_monte_carlo_in_twenty_dimensions() -> None:
    """C = E[sup density / density] under noise around the centre."""
    radius, dim = 1.5, 20
    y = np.random.default_rng(0).laplace(size=(200_000, dim))
    norm = np.abs(y).sum(1)
    ratio = np.exp(np.minimum(norm, radius))
    error = 4 * ratio.std() / math.sqrt(len(ratio))
    assert math.exp(log_capacity_laplace(dim, radius, 1.0)) == pytest.approx(ratio.mean(), abs=error + 1e-6)


@examples(500)
@given(st.integers(1, 2000), st.floats(-6, 5).map(lambda e: 10.0**e))
def test_the_truncated_exponential_series(dim: int, a: float) -> None:
    logs = np.arange(dim + 1) * math.log(a) - np.array([math.lgamma(k + 1) for k in range(dim + 1)])
    top = logs.max()
    exact = top + math.log(math.fsum(np.exp(logs - top)))
    assert log_capacity_laplace(dim, a, 1.0) == pytest.approx(exact, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("a", [1e-300, 1e-9, 1.0, 1e9, 1e15])
def test_one_dimension_is_one_plus_a(a: float) -> None:
    assert log_capacity_laplace(1, a, 1.0) == pytest.approx(math.log1p(a), rel=1e-14)


@examples(500)
@given(st.integers(1, 10**9), st.floats(-6, 12).map(lambda e: 10.0**e), st.floats(1.01, 3.0))
def test_laws(dim: int, a: float, more: float) -> None:
    """At least 1, at most e^a, monotone in radius, scale and dimension; continuous where the formula changes."""
    here = log_capacity_laplace(dim, a, 1.0)
    assert 0 < here <= a * (1 + 1e-15)
    assert log_capacity_laplace(dim, a * more, 1.0) > here
    assert log_capacity_laplace(dim, a, more) < here
    assert log_capacity_laplace(dim + 1, a, 1.0) >= here * (1 - 1e-14)


@pytest.mark.parametrize("dim", [10**4, 10**6, 10**9])
def test_regimes_meet(dim: int) -> None:
    """Across a = p and across the underflow of the incomplete gamma function, second differences stay small."""
    root = math.sqrt(dim)
    grid = np.concatenate([dim + root * np.linspace(-1, 1, 41), dim + root * np.linspace(30, 45, 301)])
    values = np.array([log_capacity_laplace(dim, float(a), 1.0) for a in grid])
    for part in (slice(0, 41), slice(41, None)):
        slope = np.diff(values[part]) / np.diff(grid[part])
        assert (np.abs(np.diff(slope)) < 0.1 / root + 1e-13 * dim).all()
        assert (slope > 0).all()


def test_bad_input() -> None:
    for arguments, word in [((1, -1.0, 1.0), "clip"), ((1, 1.0, 0.0), "scale"), ((0, 1.0, 1.0), "dim")]:
        with pytest.raises(DomainError, match=f"Laplace capacity: {word} must"):
            log_capacity_laplace(*arguments)


def test_speed() -> None:
    """No work that grows with the dimension; 5 ms on one machine is a row of the evidence."""
    for a in (1.0, 1e9, 1.1e9, 1e12):
        start = time.process_time()
        log_capacity_laplace(10**9, a, 1.0)
        assert time.process_time() - start < 0.1
