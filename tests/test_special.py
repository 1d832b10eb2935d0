"""Special functions against arbitrary precision, and the guards that formulas share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.special import log1pmx, log_sphere_area, stirling_tail


@given(st.one_of(st.floats(-0.999, 1.0), st.floats(-9, 3).map(lambda e: 10.0**e)))
def test_log1pmx_keeps_its_relative_precision(x: float) -> None:
    digits = 60 - 2 * math.frexp(x)[1] // 3  # the difference is of the size of x²
    with mp.workdps(max(60, digits)):
        exact = mp.log1p(mp.mpf(x)) - mp.mpf(x)
    assert log1pmx(x) == pytest.approx(float(exact), rel=2e-14, abs=1e-300)


@given(st.floats(-2, 12).map(lambda e: 10.0**e))
def test_stirling_tail(z: float) -> None:
    with mp.workdps(60):
        w = mp.mpf(z)
        exact = mp.loggamma(w + 1) - (w * mp.log(w) - w + mp.log(2 * mp.pi * w) / 2)
    assert stirling_tail(z) == pytest.approx(float(exact), rel=1e-13, abs=4e-15)


def test_arrays_and_numbers_agree() -> None:
    x = np.array([-0.5, 1e-8, 0.3, 7.0])
    assert [log1pmx(float(v)) for v in x] == list(log1pmx(x))
    z = np.array([0.5, 7.9, 8.1, 1e9])
    assert [stirling_tail(float(v)) for v in z] == list(stirling_tail(z))


def test_area_of_spheres() -> None:
    areas = [math.exp(log_sphere_area(p)) for p in (1, 2, 3, 4)]
    assert areas == pytest.approx([2, 2 * math.pi, 4 * math.pi, 2 * math.pi**2])


@pytest.mark.parametrize("value", [-1, 0, math.nan, math.inf, "a", None])
def test_a_guard_names_formula_domain_and_value(value: float) -> None:
    with pytest.raises(DomainError) as caught:
        guards.positive(value, "sigma", "some formula")
    said = f"some formula: sigma must lie in (0, ∞), got {value!r}; give a number such as sigma=1"
    assert str(caught.value) == said


def test_guards_let_through_what_they_should() -> None:
    assert guards.positive(np.float32(0.5), "x", "f") == 0.5
    assert guards.non_negative(0, "x", "f") == 0.0
    assert guards.probability(1, "x", "f") == 1.0
    assert guards.count(np.int64(3), "x", "f") == 3
    for bad in (3.0, True, "3", 0):
        with pytest.raises(DomainError, match="x must be an integer ≥ 1"):
            guards.count(bad, "x", "f")  # type: ignore[arg-type]
