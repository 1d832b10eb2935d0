"""The statistics of a verdict, against their definitions and by simulation."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from leakgauge.audit.judge.arms import Arms
from leakgauge.audit.judge.statistics import best_of, excess, holm, rate_at
from leakgauge.errors import DomainError
from leakgauge.metrics import mean_interval, sign_flips
from leakgauge.metrics.sign_flips import least_p, sign_flip_p


def test_sign_flip_p_value_is_the_share_of_sign_patterns_at_least_as_extreme() -> None:
    gain = np.array([0.5, -0.1, 0.3, 0.2])
    sums = [sum(s * g for s, g in zip(signs, gain, strict=True)) for signs in itertools.product((1, -1), repeat=4)]
    expected = np.mean([s >= gain.sum() - 1e-12 for s in sums])
    assert excess(gain, np.zeros(4)).p == pytest.approx(expected)


def test_sign_flips_of_many_records_do_not_fill_memory_nor_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    gain = np.random.default_rng(0).normal(0.01, 1.0, 20_000)
    tracemalloc.start()
    p = sign_flip_p(gain, 200, np.random.default_rng(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * sign_flips.BLOCK
    monkeypatch.setattr(sign_flips, "BLOCK", 30_001)
    assert sign_flip_p(gain, 200, np.random.default_rng(1)) == p
    signs = np.random.default_rng(1).integers(0, 2, (200, len(gain))) * 2 - 1
    assert p == (1 + (signs @ gain >= gain.sum()).sum()) / 201


@pytest.mark.parametrize("n", [5, 9])
def test_sign_flip_p_value_is_that_of_scipys_permutation_test(n: int) -> None:
    gain = np.random.default_rng(n).normal(0.3, 1, n)
    oracle = stats.permutation_test(
        (gain,), lambda x, axis: x.sum(axis), permutation_type="samples", alternative="greater", vectorized=True
    )
    assert excess(gain, np.zeros(n)).p == pytest.approx(oracle.pvalue)


def test_all_records_above_the_null_reach_the_least_p() -> None:
    for n in (3, 8, 16):
        assert excess(np.ones(n), np.zeros(n)).p == least_p(n) == 2.0**-n


def test_no_difference_is_no_evidence() -> None:
    assert excess(np.ones(10), np.ones(10)).p == 1.0


def test_false_alarms_stay_within_the_level() -> None:
    generator = np.random.default_rng(0)
    p = np.array([excess(*generator.normal(size=(2, 12)), resamples=50).p for _ in range(600)])
    for level in (0.05, 0.2):
        # binomial(600, level) stays below this with probability 0.999
        assert (p <= level).mean() <= level + 3.1 * np.sqrt(level * (1 - level) / 600)


def test_the_interval_holds_the_mean_and_shrinks_with_records() -> None:
    generator = np.random.default_rng(1)
    few, many = (excess(generator.normal(1, 1, n), np.zeros(n)) for n in (10, 160))
    assert few.low <= few.mean <= few.high
    gain = generator.exponential(size=9)
    found, interval = excess(gain, np.zeros(9)), mean_interval(gain)
    assert (found.mean, found.low, found.high) == (interval.mean, interval.low, interval.high)
    assert many.high - many.low < few.high - few.low


def test_shapes_must_agree() -> None:
    with pytest.raises(DomainError, match="same records"):
        excess(np.ones(3), np.ones(4))


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=6))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p: dict[str, float]) -> None:
    corrected = holm(p)
    assert all(corrected[k] >= p[k] or corrected[k] == 1.0 for k in p)
    assert all(corrected[a] <= corrected[b] for a in p for b in p if p[a] < p[b])


def test_holm_of_one_is_itself_and_of_equals_is_bonferroni() -> None:
    assert holm({"a": 0.03}) == {"a": 0.03}
    assert holm({"a": 0.01, "b": 0.01})["a"] == pytest.approx(0.02)


def test_rate_at_a_false_positive_rate() -> None:
    null, real = np.linspace(0, 1, 101), np.array([0.2, 0.96, 0.99, 2.0])
    found = rate_at(real, null, 0.05)
    assert found.threshold == pytest.approx(0.95)
    assert found.rate == 0.75


def test_best_of_ignores_failed_attacks() -> None:
    assert best_of([np.array([1.0, np.nan]), np.array([0.0, 3.0])]).tolist() == [1.0, 3.0]


def test_lower_is_better_for_some_metrics() -> None:
    scores = {"a": {"ssim": np.array([0.5, 0.5]), "lpips": np.array([0.1, 0.9])}}
    scores["b"] = {"ssim": np.array([0.5, 0.4]), "lpips": np.array([0.3, 0.2])}
    arms = Arms({"real": scores}, {}, np.ones((1, 2), bool), {}, lower=frozenset({"lpips"}))
    assert arms.best("real", "lpips").tolist() == [0.1, 0.2]
    assert arms.best("real", "ssim").tolist() == [0.5, 0.5]
    assert [arms.winner("real", "ssim", i) for i in range(2)] == ["a", "a"]
    assert [arms.winner("real", "lpips", i) for i in range(2)] == ["a", "b"]
