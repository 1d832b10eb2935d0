"""The adversarial risk and the two intervals, by hand and by simulation."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from leakgauge.errors import DomainError
from leakgauge.metrics import adversarial_risk, clopper_pearson, difference_interval, mean_interval


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


LAWS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], float]] = {
    "normal": (lambda g, shape: g.normal(3, 2, shape), 3.0),
    "exponential": (lambda g, shape: g.exponential(1, shape), 1.0),
    "few leak": (lambda g, shape: g.beta(0.5, 3, shape), 1 / 7),
    "most leak": (lambda g, shape: g.beta(5, 1, shape), 5 / 6),
    "shares of 30 features": (lambda g, shape: g.binomial(30, g.beta(1, 4, shape)) / 30, 0.2),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [8, 12, 20])
def test_mean_interval_covers(law: str, n: int) -> None:
    """At least 93 %, in 1,000 samples within three errors (0.8 % each); the percentile interval has 84 to 90 % at 8."""
    draw, mean = LAWS[law]
    samples = draw(np.random.default_rng(1), (1000, n))
    intervals = [mean_interval(row, resamples=1000) for row in samples]
    assert np.mean([i.low <= mean <= i.high for i in intervals]) >= 0.93 - 0.024


@pytest.mark.parametrize("law", ["normal", "exponential"])
def test_difference_interval_covers(law: str) -> None:
    draw, _ = LAWS[law]
    generator = np.random.default_rng(2)
    pairs = zip(draw(generator, (1000, 8)), draw(generator, (1000, 14)), strict=True)
    intervals = [difference_interval(after, before, resamples=1000) for after, before in pairs]
    assert np.mean([i.low <= 0 <= i.high for i in intervals]) >= 0.93 - 0.024


def test_never_shorter_than_students_interval() -> None:
    for n in (2, 3, 5, 12):
        values = np.random.default_rng(n).exponential(size=n)
        student = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
        interval = mean_interval(values)
        assert interval.low <= student[0] + 1e-12
        assert interval.high >= student[1] - 1e-12
    one, other = np.random.default_rng(0).normal(size=(2, 9))
    welch = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    interval = difference_interval(one, other)
    assert interval.mean == pytest.approx(one.mean() - other.mean())
    assert interval.low <= welch.low + 1e-12
    assert interval.high >= welch.high - 1e-12


def test_one_leak_among_equals_has_an_end() -> None:
    """A third of the resamples have no spread at all: the interval must neither be empty nor infinite."""
    interval = mean_interval([1.0] * 7 + [0.3])
    assert 0.3 < interval.low < interval.mean < interval.high < 1.5


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
    assert exact.low == mean_interval([30.0, 31.0, 29.0, 31.0]).low
    assert mean_interval([math.inf, math.inf]).low == math.inf
    assert difference_interval([30.0, 31.0], [math.inf, 3.0]).mean == -math.inf
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
        lambda: difference_interval([math.inf, 1.0], [math.inf, 1.0]),
    ):
        with pytest.raises(DomainError):
            call()
