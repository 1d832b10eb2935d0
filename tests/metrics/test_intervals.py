"""The adversarial risk and the two intervals, by hand and by simulation."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from leakgauge.errors import DomainError
from leakgauge.metrics import adversarial_risk, clopper_pearson, mean_interval


def test_risk_by_hand() -> None:
    distances = torch.tensor([0.5, 1.0, 1.5, math.nan, math.inf])
    risk = adversarial_risk(distances, delta=1.0)
    assert (risk.rate, risk.n) == (0.6, 5)  # on the sphere is inside the ball; NaN and inf are failures
    assert (risk.low, risk.high) == clopper_pearson(3, 5)
    assert adversarial_risk(torch.tensor([True, True, False, False, False])) == risk
    assert risk.low < risk.rate < risk.high


def test_known_intervals() -> None:
    # closed forms: no failure in n gives high = 1 − (α/2)^(1/n)
    assert clopper_pearson(0, 20) == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert clopper_pearson(20, 20) == (pytest.approx(0.025 ** (1 / 20)), 1.0)
    oracle = stats.binomtest(7, 30).proportion_ci(0.9, method="exact")
    assert clopper_pearson(7, 30, 0.9) == (pytest.approx(oracle.low), pytest.approx(oracle.high))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.95])
@pytest.mark.parametrize("n", [10, 60])
def test_clopper_pearson_covers(rate: float, n: int) -> None:
    counts = np.random.default_rng(0).binomial(n, rate, size=4000)
    intervals = {count: clopper_pearson(int(count), n) for count in set(counts)}
    covered = np.mean([intervals[c][0] <= rate <= intervals[c][1] for c in counts])
    exact = sum(stats.binom.pmf(k, n, rate) for k in range(n + 1) if intervals_hold(k, n, rate))
    assert exact >= 0.95  # the law, without simulation noise
    assert covered == pytest.approx(exact, abs=0.02)  # and the simulation agrees


def intervals_hold(count: int, n: int, rate: float) -> bool:
    low, high = clopper_pearson(count, n)
    return low <= rate <= high


@pytest.mark.parametrize("n", [8, 20])
def test_mean_interval_covers(n: int) -> None:
    # the plain percentile interval covers 87 % at n = 8: this test would see that
    samples = np.random.default_rng(1).normal(3, 2, size=(1000, n))
    intervals = [mean_interval(row, resamples=1000) for row in samples]
    covered = np.mean([i.low <= 3 <= i.high for i in intervals])
    assert covered == pytest.approx(0.95, abs=0.02)


def test_mean_interval_is_deterministic_and_seeded() -> None:
    values = torch.rand(30, generator=torch.Generator().manual_seed(0))
    one = mean_interval(values)
    assert one == mean_interval(values.numpy())
    assert one != mean_interval(values, seed=1)
    assert one.low < one.mean < one.high
    assert one.mean == pytest.approx(values.double().mean().item())
    wide = mean_interval(values, 0.99)
    assert wide.low < one.low < one.high < wide.high


def test_mean_interval_of_odd_samples() -> None:
    assert mean_interval([4.0]).low == -math.inf
    constant = mean_interval([2.0, 2.0, 2.0])
    assert (constant.low, constant.mean, constant.high) == (2.0, 2.0, 2.0)
    exact = mean_interval([30.0, 31.0, 29.0, math.inf])
    assert exact.mean == exact.high == math.inf
    assert not math.isnan(exact.low)
    assert mean_interval(np.zeros(2_000_000), resamples=2).n == 2_000_000


def test_domains_are_guarded() -> None:
    distances = torch.ones(3)
    for call in (
        lambda: adversarial_risk(distances),
        lambda: adversarial_risk(distances, delta=-1.0),
        lambda: adversarial_risk(distances, delta=math.nan),
        lambda: adversarial_risk(distances > 0, delta=1.0),
        lambda: adversarial_risk(distances[:0], delta=1.0),
        lambda: adversarial_risk(distances, 1.0, confidence=1.0),
        lambda: clopper_pearson(4, 3),
        lambda: mean_interval([]),
        lambda: mean_interval([1.0, math.nan]),
        lambda: mean_interval([math.inf, -math.inf]),
        lambda: mean_interval([1.0, 2.0], confidence=0.0),
    ):
        with pytest.raises(DomainError):
            call()
