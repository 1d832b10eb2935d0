"""ε, δ, μ and σ: exact values, round trips, the accountants, and the words that go with a number."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from leakgauge.bounds import (
    classical_sigma,
    epsilon_of,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    laplace_epsilon,
    mu_of_noise,
    sigma_of,
    vmf_epsilon,
)
from leakgauge.errors import DomainError, MissingExtraError
from tests.examples import examples

MUS = st.floats(-3, 2).map(lambda e: 10.0**e)
DELTAS = st.floats(-12, -1).map(lambda e: 10.0**e)


@pytest.mark.parametrize(("mu", "epsilon"), [(1.0, 0.0), (1.0, 1.0), (0.3, 2.0), (3.0, 5.0), (5.0, 1.0)])
def test_profile_is_the_hockey_stick_integral(mu: float, epsilon: float) -> None:
    def excess(y: float) -> float:
        return max(0.0, stats.norm.pdf(y, mu) - math.exp(epsilon) * stats.norm.pdf(y))

    edge = epsilon / mu + mu / 2
    exact = integrate.quad(excess, edge, edge + 12 + mu, epsabs=1e-14)[0]
    assert gaussian_delta(mu, epsilon) == pytest.approx(exact, rel=1e-8, abs=1e-13)


def test_golden() -> None:
    """Balle and Wang: ε = 1, δ = 1e-5 needs σ = 3.7306; the textbook formula 4.8448."""
    assert sigma_of(1.0, delta=1e-5).sigma == pytest.approx(3.7306, abs=1e-4)
    assert classical_sigma(0.999999, 1e-5) == pytest.approx(4.8448, abs=1e-4)
    assert gaussian_delta(1.0, 0.0) == pytest.approx(2 * stats.norm.cdf(0.5) - 1, rel=1e-14)


@examples(1000)
@given(MUS, DELTAS)
def test_round_trip(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0:  # δ alone covers it; the inverse is the largest μ it covers
        assert gaussian_mu(0.0, delta) >= mu * (1 - 1e-12)
        return
    assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-8)
    if epsilon > 1e-9:
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5])
@pytest.mark.parametrize("power", [-305, -250, -20, 6, 7, 8, 10, 14, 17, 30, 100, 153])
def test_any_mu_has_an_epsilon_between_its_two_ends(power: int, delta: float) -> None:
    """The privacy loss is N(μ²/2, μ²), so ε lies beside μ²/2 by no more than the tails; μ comes back from it."""
    mu, tail = 10.0**power, math.sqrt(-2 * math.log(delta))
    epsilon = gaussian_epsilon(mu, delta)
    assert epsilon <= (mu * mu / 2 + mu * tail) * (1 + 1e-9) + 1e-12
    if mu > 1:
        assert epsilon >= (mu * mu / 2 - mu * tail) * (1 - 1e-9)
        # beyond 1e7 both are one-sided: the exact values are nearer to each other than twice the tails
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-9 + 2 * tail / max(mu, 1e7))


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-20, 1e13, 1e15, 1e20, 1e100, 1e300])
def test_any_epsilon_has_a_mu(epsilon: float) -> None:
    for delta in (1e-300, 1e-5):
        mu = gaussian_mu(epsilon, delta)
        assert 0 < mu <= math.sqrt(2 * epsilon) + 2
        assert gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-6) + 1e-12


@examples(300)
@given(st.floats(0.05, 100.0), DELTAS, st.integers(1, 10**5), st.sampled_from(["add-or-remove", "replace"]))
def test_sigma_to_epsilon_to_sigma(sigma: float, delta: float, steps: int, relation: Any) -> None:
    there = epsilon_of(sigma, delta=delta, steps=steps, relation=relation)
    if there.epsilon < 1e-9:
        return
    back = sigma_of(there.epsilon, delta=delta, steps=steps, relation=relation)
    assert back.sigma == pytest.approx(sigma, rel=1e-6)
    assert back.epsilon <= there.epsilon


@examples(300)
@given(MUS, DELTAS, st.floats(1.01, 2.0))
def test_monotone(mu: float, delta: float, more: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_epsilon(mu * more, delta) >= epsilon
    assert gaussian_epsilon(mu, min(delta * more, 0.5)) <= epsilon


@given(st.floats(0.01, 0.99), DELTAS)
def test_the_classical_sigma_is_enough_but_never_less(epsilon: float, delta: float) -> None:
    assert classical_sigma(epsilon, delta) >= sigma_of(epsilon, delta=delta).sigma


def test_replacing_costs_twice_the_sensitivity() -> None:
    assert mu_of_noise(2.0, relation="replace") == 2 * mu_of_noise(2.0) == 1.0
    assert mu_of_noise(2.0, steps=9) == 1.5
    assert epsilon_of(2.0, delta=1e-5, relation="replace").epsilon == pytest.approx(epsilon_of(1.0, delta=1e-5).epsilon)


@given(st.integers(2, 8), st.floats(0.0, 50.0), st.integers(0, 10**6))
def test_metric_privacy_of_vmf(dim: int, kappa: float, seed: int) -> None:
    """|log f(y|x) − log f(y|x')| = κ|⟨y, x − x'⟩| ≤ κ‖x − x'‖, reached along x − x'."""
    rng = np.random.default_rng(seed)
    x, other, y = (v / np.linalg.norm(v) for v in rng.normal(size=(3, dim)))
    distance = float(np.linalg.norm(x - other))
    assert abs(kappa * (y @ (x - other))) <= vmf_epsilon(kappa, min(distance, 2.0)) * (1 + 1e-9)
    worst = (x - other) / distance
    assert kappa * (worst @ (x - other)) == pytest.approx(vmf_epsilon(kappa, min(distance, 2.0)), abs=1e-9)
    assert vmf_epsilon(kappa) == 2 * kappa


def test_laplace() -> None:
    assert laplace_epsilon(1.0, 0.5) == 2
    assert laplace_epsilon(1.0, 0.5, relation="replace") == 4


def test_a_result_says_what_it_protects() -> None:
    found = epsilon_of(1.0, delta=1e-5, unit="client", relation="replace")
    assert (found.unit, found.relation, found.method) == ("client", "replace", "exact")
    assert "one client is replaced" in str(found)
    assert "1e-05" in str(found)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian_epsilon(0.0, 0.1), r"exact Gaussian mechanism: mu must lie in \(0, ∞\), got 0.0"),
        (lambda: gaussian_epsilon(1.0, 1.0), r"delta must lie in \(0, 1\), got 1.0"),
        (lambda: gaussian_epsilon(1.0, math.nan), "delta .* got nan"),
        (lambda: gaussian_mu(-1.0, 0.1), r"epsilon must lie in \[0, ∞\), got -1.0"),
        (lambda: classical_sigma(1.0, 1e-5), r"classical Gaussian mechanism: epsilon must lie in \(0, 1\), got 1.0"),
        (lambda: epsilon_of(0.0, delta=0.1), "privacy accounting: sigma"),
        (lambda: epsilon_of(1.0, delta=0.0), "privacy accounting: delta"),
        (lambda: epsilon_of(1.0, delta=0.1, rate=1.5), r"rate must lie in \(0, 1\], got 1.5"),
        (lambda: epsilon_of(1.0, delta=0.1, steps=0), "steps must be an integer ≥ 1, got 0"),
        (lambda: epsilon_of(1.0, delta=0.1, rate=0.5, method="exact"), "rate must be 1 for the exact formula"),
        (lambda: epsilon_of(1.0, delta=0.1, rate=0.5, relation="replace"), "rate must be 1 for replacing"),
        (lambda: epsilon_of(1.0, delta=0.1, method="guess"), "method must be one of auto, exact, rdp, pld"),  # type: ignore[arg-type]
        (lambda: epsilon_of(1.0, delta=0.1, relation="swap"), "relation must be"),  # type: ignore[arg-type]
        (lambda: epsilon_of(1.0, delta=0.1, unit="pixel"), "unit must be one of record, client, got 'pixel'"),  # type: ignore[arg-type]
        (lambda: sigma_of(0.0, delta=0.1), r"epsilon must lie in \(0, ∞\), got 0.0"),
        (lambda: vmf_epsilon(-1.0), "von Mises-Fisher noise: kappa"),
        (lambda: vmf_epsilon(1.0, 3.0), "distance"),
        (lambda: laplace_epsilon(1.0, 0.0), "Laplace mechanism: scale"),
    ],
)
def test_bad_input_says_formula_domain_value(call: Any, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        call()


def test_a_missing_extra_explains_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'leakgauge\[dp\]'"):
        epsilon_of(1.0, delta=1e-5, rate=0.01, steps=100)
    assert epsilon_of(1.0, delta=1e-5, steps=100).epsilon > 0  # the exact formula needs no extra


class TestAccountants:
    """By dp-accounting; skipped where the extra is not installed."""

    @pytest.fixture(autouse=True)
    def _needs_the_extra(self) -> None:
        pytest.importorskip("dp_accounting")

    def test_golden(self) -> None:
        """σ = 1, q = 0.01, 1,000 steps, δ = 1e-5, as dp-accounting 0.6 gives them."""
        options: Any = {"delta": 1e-5, "rate": 0.01, "steps": 1000}
        assert epsilon_of(1.0, method="rdp", **options).epsilon == pytest.approx(2.10137, abs=1e-4)
        assert epsilon_of(1.0, method="pld", **options).epsilon == pytest.approx(1.82824, abs=1e-3)
        assert epsilon_of(1.0, **options).method == "pld"

    @pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (5.0, 10), (50.0, 1000)])
    def test_without_sampling_both_lie_above_the_exact_value(self, sigma: float, steps: int) -> None:
        exact, pld, rdp = (
            epsilon_of(sigma, delta=1e-5, steps=steps, method=m).epsilon for m in ("exact", "pld", "rdp")
        )
        assert exact <= pld + 1e-9
        assert pld == pytest.approx(exact, rel=2e-3)
        assert rdp >= pld

    def test_replacing_is_half_the_multiplier(self) -> None:
        replaced = epsilon_of(4.0, delta=1e-5, method="rdp", relation="replace").epsilon
        assert replaced == pytest.approx(epsilon_of(2.0, delta=1e-5, method="rdp").epsilon)

    @pytest.mark.parametrize("sigma", [0.7, 1.3])
    def test_round_trip_rdp(self, sigma: float) -> None:
        self.round_trip(sigma, "rdp")

    @pytest.mark.slow
    @pytest.mark.parametrize("sigma", [0.7, 1.3])
    def test_round_trip_pld(self, sigma: float) -> None:
        self.round_trip(sigma, "pld")

    def round_trip(self, sigma: float, method: Any) -> None:
        options: Any = {"delta": 1e-5, "rate": 0.02, "steps": 300, "method": method}
        there = epsilon_of(sigma, **options)
        back = sigma_of(there.epsilon, **options)
        assert back.sigma == pytest.approx(sigma, rel=1e-6)
        assert back.epsilon <= there.epsilon
