"""Ceilings on success: golden values, ordering, and that real adversaries stay below them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakgauge.bounds import (
    best_guess,
    best_guess_by_pairs,
    capacity_ceiling,
    epsilon_ceiling,
    gaussian_ceiling,
    gaussian_delta,
    gaussian_epsilon,
    log_capacity_gaussian,
    log_capacity_vmf,
    lower_limit,
    mu_ceiling,
    profile_ceiling,
    tradeoff_ceiling,
    upper_limit,
    vmf_ceiling,
)
from leakgauge.defenses.update.vmf_sample import sample_gaps
from leakgauge.errors import DomainError
from tests.examples import examples

GUESSES = st.floats(1e-6, 0.999)


def test_golden() -> None:
    assert mu_ceiling(0.5, 1.0).value == pytest.approx(stats.norm.cdf(1.0))
    assert mu_ceiling(0.1, 0.0).value == pytest.approx(0.1)
    assert (mu_ceiling(0.0, 5.0).value, mu_ceiling(1.0, 0.1).value) == (0.0, 1.0)
    assert epsilon_ceiling(0.1, math.log(2)).value == pytest.approx(0.2)
    assert epsilon_ceiling(0.4, math.log(4)).value == pytest.approx(0.85)  # 1 − (1 − 0.4)/4
    assert epsilon_ceiling(0.1, 1000.0).value == 1.0
    assert epsilon_ceiling(0.0, 1.0, 1e-3).value == pytest.approx(1e-3)


def test_gaussian_is_mu_is_trade_off() -> None:
    def tradeoff(alpha: float) -> float:
        return float(stats.norm.cdf(stats.norm.isf(alpha) - 0.5))

    found = gaussian_ceiling(0.05, clip=1.0, sigma=2.0)
    assert found.value == pytest.approx(mu_ceiling(0.05, 0.5).value)
    assert found.value == pytest.approx(tradeoff_ceiling(0.05, tradeoff).value)
    assert "zero update" in found.reference


@examples(500)
@given(GUESSES, st.floats(0.01, 5.0), st.integers(1, 100))
def test_rounds_compose_like_root_t(guess: float, mu: float, rounds: int) -> None:
    several = mu_ceiling(guess, mu, rounds=rounds)
    assert several.value == pytest.approx(mu_ceiling(guess, mu * math.sqrt(rounds)).value)
    assert several.value >= mu_ceiling(guess, mu).value >= guess * (1 - 1e-12)


@settings(max_examples=100)
@given(st.floats(1e-4, 0.9), st.floats(0.05, 4.0))
def test_every_point_of_the_profile_lies_above_the_exact_ceiling(guess: float, mu: float) -> None:
    """(ε, δ) forgets part of the trade-off: its best point comes close to, never below, the Gaussian ceiling."""
    exact = mu_ceiling(guess, mu).value
    grid = np.linspace(0, mu * mu / 2 + 6 * mu, 400)
    best = profile_ceiling(guess, lambda e: gaussian_delta(mu, e), list(grid)).value
    assert exact - 1e-12 <= best <= min(1, exact + 0.02)
    assert epsilon_ceiling(guess, gaussian_epsilon(mu, 1e-5), 1e-5).value >= exact - 1e-12


def test_64_secrets_stay_below_every_ceiling() -> None:
    """Exact posterior maximiser among 64 clipped secrets, Gaussian noise: below robustness and capacity ceilings."""
    rng = np.random.default_rng(0)
    secrets = rng.normal(size=(64, 20))
    secrets /= np.linalg.norm(secrets, axis=1, keepdims=True)
    for sigma in (0.2, 0.4, 1.0):
        hidden = rng.integers(64, size=4000)
        y = secrets[hidden] + sigma * rng.standard_normal((4000, 20))
        hits = int((np.argmin(((y[:, None] - secrets) ** 2).sum(-1), 1) == hidden).sum())
        success = lower_limit(hits, 4000)
        assert success <= gaussian_ceiling(1 / 64, clip=1.0, sigma=sigma).value
        assert success <= capacity_ceiling(1 / 64, log_capacity_gaussian(20, 1.0, sigma)).value


@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (3, 10.0), (20, 30.0), (13_700, 500.0)])
@pytest.mark.parametrize("guess", [1 / 64, 0.3])
def test_vmf_ceiling_is_the_mass_of_a_cap(dim: int, kappa: float, guess: float) -> None:
    """By draws: the cap that holds a share ``guess`` of uniform directions holds this share of the noise."""
    rng = np.random.default_rng(0)
    cosines = np.sort(1 - sample_gaps(dim, 0.0, 400_000, rng))
    edge = cosines[int((1 - guess) * len(cosines))]
    share = float((1 - sample_gaps(dim, kappa, 100_000, rng) >= edge).mean())
    found = vmf_ceiling(guess, dim=dim, concentration=kappa).value
    assert found == pytest.approx(share, abs=0.01)
    assert guess <= found <= capacity_ceiling(guess, log_capacity_vmf(dim, kappa)).value + 1e-9


def test_vmf_ceiling_on_the_ordinary_sphere() -> None:
    """p = 3 has a closed form: P(w ≥ c) = (1 − e^{−κ(1 − c)}) / (1 − e^{−2κ}), c = 1 − 2·guess."""
    for kappa in (1e-6, 0.5, 5.0, 500.0, 1e6):
        for guess in (1e-9, 0.01, 0.5, 0.99):
            exact = math.expm1(-2 * kappa * guess) / math.expm1(-2 * kappa)
            assert vmf_ceiling(guess, dim=3, concentration=kappa).value == pytest.approx(exact, rel=1e-9, abs=2e-13)


@examples(200)
@given(st.integers(2, 10**6), st.floats(0, 8).map(lambda e: 10.0**e), st.floats(1e-6, 0.99))
def test_vmf_ceiling_laws(dim: int, kappa: float, guess: float) -> None:
    here = vmf_ceiling(guess, dim=dim, concentration=kappa).value
    assert guess <= here <= 1
    assert vmf_ceiling(guess, dim=dim, concentration=2 * kappa).value >= here - 1e-9
    assert vmf_ceiling(guess, dim=dim, concentration=0.0).value == pytest.approx(guess, rel=1e-6)


@examples(300)
@given(st.integers(1, 3000), st.data())
def test_clopper_pearson(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials))
    limit = upper_limit(hits, trials, confidence=0.95)
    assert hits / trials <= limit <= 1
    if hits < trials:  # the definition: so few hits have probability 5 % at the limit
        assert stats.binom.cdf(hits, trials, limit) == pytest.approx(0.05, rel=1e-6)
    assert lower_limit(hits, trials, confidence=0.95) <= hits / trials


def test_best_guess_among_some_and_among_all() -> None:
    """Uniform points of [0, 1], η = 0.1: the best guess hits 0.2; pairs lie within 0.2 with probability 0.36."""
    rng = np.random.default_rng(0)
    records, guesses = rng.random(4000), np.linspace(0, 1, 21)
    tried = best_guess(np.abs(guesses[:, None] - records), 0.1)
    assert 0.19 < tried.estimate <= 0.23
    assert 0.2 <= tried.upper < 0.25
    assert tried.scope == "these guesses"
    first, second = records.reshape(2, -1)
    every = best_guess_by_pairs(np.abs(first - second), 0.1)
    assert every.estimate == pytest.approx(0.6, abs=0.03)
    assert every.upper >= 0.2
    assert every.scope == "all guesses"


def test_limits_cover() -> None:
    """In 300 repetitions of 100 records the 90 % limit misses the true rate in at most 10 %, within 4 errors."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(300):
        distances = np.abs(rng.random(100) - np.array([[0.3], [0.5], [0.7]]))
        missed += best_guess(distances, 0.1, confidence=0.9).upper < 0.2
    assert missed <= 30 + 4 * math.sqrt(27)


def test_bad_input() -> None:
    cases = [
        (lambda: mu_ceiling(1.5, 1.0), r"reconstruction robustness: guess must lie in \[0, 1\], got 1.5"),
        (lambda: mu_ceiling(0.5, -1.0), "mu"),
        (lambda: mu_ceiling(0.5, 1.0, rounds=0), "rounds"),
        (lambda: gaussian_ceiling(0.5, clip=-1.0, sigma=1.0), "clip"),
        (lambda: gaussian_ceiling(0.5, clip=1.0, sigma=0.0), "sigma"),
        (lambda: epsilon_ceiling(0.5, -1.0), "epsilon"),
        (lambda: epsilon_ceiling(0.5, 1.0, 1.0), "delta"),
        (lambda: tradeoff_ceiling(0.5, lambda a: 0.9), "trade-off"),
        (lambda: profile_ceiling(0.5, lambda e: 0.1, []), "epsilons"),
        (lambda: vmf_ceiling(0.5, dim=1, concentration=1.0), "dim"),
        (lambda: vmf_ceiling(0.5, dim=3, concentration=-1.0), "concentration"),
        (lambda: upper_limit(3, 2), "hits"),
        (lambda: best_guess([[math.nan]], 0.1), "distances"),
        (lambda: best_guess_by_pairs([], 0.1), "distances"),
        (lambda: best_guess([[0.1]], -0.1), "threshold"),
        (lambda: best_guess([[0.1]], 0.1, confidence=1.0), "confidence"),
    ]
    for call, words in cases:
        with pytest.raises(DomainError, match=words):
            call()
