"""Von Mises-Fisher in numbers: arbitrary precision, closed forms, scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from leakgauge.defenses.update.vmf_math import (
    log_density,
    log_normaliser,
    log_peak,
    mean_resultant,
    uniform_cap,
)
from leakgauge.errors import DomainError
from leakgauge.testing.references import relative_error, vmf_log_capacity, vmf_log_capacity_bessel
from tests.examples import examples

KAPPAS = st.floats(-6, 12).map(lambda e: 10.0**e)
DIMS = st.one_of(st.integers(1, 100), st.integers(1, 10**9))


def test_golden() -> None:
    assert log_peak(3, 1.0) == pytest.approx(0.838560638428804, abs=3e-15)  # 15 digits, some roundings


@pytest.mark.parametrize("kappa", [1e-9, 1e-6, 0.1, 1.0, 39.9, 40.1, 1e3, 1e6, 1e12, 1e15])
def test_closed_forms_in_one_and_three_dimensions(kappa: float) -> None:
    assert log_peak(1, kappa) == pytest.approx(-math.log1p(math.expm1(-2 * kappa) / 2), rel=1e-14)
    assert log_peak(3, kappa) == pytest.approx(math.log(2 * kappa / -math.expm1(-2 * kappa)), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("dim", [2, 3, 5, 31, 100])
@pytest.mark.parametrize("kappa", [1e-6, 1e-2, 1.0, 35.0, 45.0, 500.0])
def test_against_the_printed_theorem(dim: int, kappa: float) -> None:
    assert relative_error(log_peak(dim, kappa), vmf_log_capacity_bessel(dim, kappa)) < 1e-13


@pytest.mark.parametrize("dim", [2, 82, 13_700, 10**9])
@pytest.mark.parametrize("kappa", [1e-6, 30.0, 1e5, 1e12])
def test_against_quadrature(dim: int, kappa: float) -> None:
    assert relative_error(log_peak(dim, kappa), vmf_log_capacity(dim, kappa)) < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 10, 32, 79, 80, 81, 82, 1000, 13_700, 10**5, 10**6, 10**7, 10**8, 10**9])
def test_against_quadrature_everywhere(dim: int) -> None:
    for exponent in np.linspace(-6, 12, 37):
        kappa = float(10.0**exponent)
        assert relative_error(log_peak(dim, kappa), vmf_log_capacity(dim, kappa)) < 1e-13


@examples(1000)
@given(DIMS, KAPPAS, st.floats(1.01, 3.0))
def test_peak_is_monotone(dim: int, kappa: float, more: float) -> None:
    here = log_peak(dim, kappa)
    assert here >= 0
    # in one dimension it saturates at two points, log 2
    assert log_peak(dim, kappa * more) > here or (dim == 1 and here == pytest.approx(math.log(2)))
    assert log_peak(dim + 1, kappa) >= here * (1 - 1e-15)
    assert log_peak(10 * dim, kappa) > here


def test_zero_concentration_is_uniform() -> None:
    for dim in (1, 2, 3, 13_700):
        assert log_peak(dim, 0.0) == 0.0
        assert mean_resultant(dim, 0.0) == 0.0


@examples(300)
@given(DIMS.filter(lambda d: d > 1), KAPPAS)
def test_mean_resultant_is_the_slope_of_the_peak(dim: int, kappa: float) -> None:
    """d log C/dκ = 1 − A_p(κ), by a central difference that is exact to third order."""
    step = 1e-3 * kappa
    slope = (log_peak(dim, kappa + step) - log_peak(dim, kappa - step)) / (2 * step)
    noise = 1e-15 * max(log_peak(dim, kappa), 1e-6) / step
    # relative error of the difference: third derivative, at most 2e-6 of the first here
    assert slope == pytest.approx(1 - mean_resultant(dim, kappa), rel=1e-4, abs=10 * noise + 1e-14)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.3), (3, 5.0), (10, 100.0), (50, 3.0), (100, 1000.0)])
def test_mean_resultant_against_scipy(dim: int, kappa: float) -> None:
    exact = special.ive(dim / 2, kappa) / special.ive(dim / 2 - 1, kappa)
    assert mean_resultant(dim, kappa) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.3), (3, 5.0), (10, 100.0), (50, 3.0)])
def test_density_against_scipy(dim: int, kappa: float) -> None:
    mean = np.eye(dim)[0]
    law = stats.vonmises_fisher(mean, kappa)
    for y in law.rvs(5, random_state=0):
        assert log_density(float(np.clip(y[0], -1, 1)), dim, kappa) == pytest.approx(float(law.logpdf(y)), rel=1e-10)


def test_normaliser_in_the_plane() -> None:
    assert log_normaliser(2, 3.0) == pytest.approx(math.log(2 * math.pi * special.i0(3.0)))


def test_uniform_cap() -> None:
    assert math.cos(uniform_cap(3, 0.25)) == pytest.approx(0.5)  # Archimedes: the height of a cap is uniform
    assert math.cos(uniform_cap(3, 0.75)) == pytest.approx(-0.5)
    assert uniform_cap(2, 1e-12) == pytest.approx(math.pi * 1e-12, rel=1e-9)  # on the circle, so is the angle
    high = math.cos(uniform_cap(10**7, 0.01))
    assert high == pytest.approx(stats.norm.isf(0.01) / math.sqrt(10**7), rel=1e-5)


@pytest.mark.parametrize(
    ("dim", "kappa", "words"),
    [(0, 1.0, "dim must be an integer ≥ 1, got 0"), (3, -1.0, r"kappa must lie in \[0, ∞\), got -1.0")],
)
def test_bad_input(dim: int, kappa: float, words: str) -> None:
    for formula in (log_peak, mean_resultant, log_normaliser):
        with pytest.raises(DomainError, match=words) as caught:
            formula(dim, kappa)
        assert "von Mises-Fisher" in str(caught.value)
    with pytest.raises(DomainError, match="cosine"):
        log_density(1.5, 3, 1.0)
