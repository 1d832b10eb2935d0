"""The test of one record by itself: its definition, its exact level whatever the scores, and its power."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from leakgauge.audit.judge.single import Numbers, Places, exposure, least_single_p, single_p
from tests.audit.judge.lineups import summary

RECORDS, PEERS = 8, 40
CLASSES = np.arange(PEERS) % 4
ONE = np.zeros(PEERS, np.int64)
LAWS = {
    "normal": lambda g, shape: g.normal(size=shape),
    "heavy tails": lambda g, shape: g.standard_cauchy(shape),
    "nearly constant": lambda g, shape: 0.226 + 1e-7 * g.normal(size=shape),
    "ties": lambda g, shape: g.integers(0, 6, shape).astype(float),
    "one update unlike the others": lambda g, shape: g.normal(size=shape) * np.geomspace(1, 100, shape[0])[:, None],
    "easy and hard records": lambda g, shape: g.normal(size=shape) + g.exponential(3, shape[1]),
}


def drawn_p(seed: int, law: str, groups: Places, *, adversaries: int = 1, batch: int = 1, draws: int = 99) -> float:
    """The p-value of reconstructions that know nothing: records take their places by lot."""
    generator = np.random.default_rng(seed)
    order = np.arange(PEERS)
    for group in np.unique(groups):
        order[groups == group] = generator.permutation(order[groups == group])
    tables = [LAWS[law](generator, (RECORDS // batch, PEERS))[:, order] for _ in range(adversaries)]
    return single_p([summary(t, groups, batch) for t in tables], groups, batch=batch, draws=draws, seed=seed)


def test_it_is_the_share_of_arrangements_that_reach_the_largest_nearness() -> None:
    table = np.random.default_rng(3).normal(size=(3, 6)) + np.eye(3, 6)
    one = summary(table, np.zeros(6, np.int64))
    level = max(table[i, i] for i in range(3))
    arrangements = [max(table[i, p] for i, p in enumerate(ways)) for ways in permutations(range(6), 3)]
    exact = np.mean([largest >= level for largest in arrangements])
    draws = 20_000
    found = single_p([one], np.zeros(6, np.int64), draws=draws)
    assert abs(found - exact) <= 4 * np.sqrt(exact * (1 - exact) / draws) + 1 / draws


def test_groups_are_exchanged_within_themselves() -> None:
    """Every reported record of a class of its own, each with one other peer: a coin for each."""
    groups = np.array([0, 1, 0, 1])
    table = np.array([[2.0, 9.0, 1.0, 9.0], [9.0, 2.0, 9.0, 1.0]])
    assert single_p([summary(table, groups)], groups, draws=40_000) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("groups", [ONE, CLASSES], ids=["labels hidden", "labels granted"])
def test_p_values_are_uniform_if_nothing_leaks(law: str, groups: Places) -> None:
    """The law of exchangeability; with ties p-values are larger."""
    p = np.array([drawn_p(seed, law, groups) for seed in range(150)])
    side = "less" if law == "ties" else "two-sided"
    smoothed = p - np.random.default_rng(0).random(len(p)) / 100 * (law != "ties")  # a p-value is a whole hundredth
    # for p-values that are too small the empirical distribution lies above that of uniform ones
    assert stats.kstest(smoothed, "uniform", alternative="greater" if side == "less" else side).pvalue > 1e-3


@pytest.mark.parametrize(("adversaries", "batch"), [(3, 1), (2, 4)])
def test_several_adversaries_and_batches_cost_no_level(adversaries: int, batch: int) -> None:
    p = [drawn_p(seed, "heavy tails", CLASSES, adversaries=adversaries, batch=batch) for seed in range(200)]
    assert sum(one <= 0.05 for one in p) <= stats.binom.isf(1e-3, 200, 0.05)


def leaking(gain: float, size: int, records: int = 10) -> Numbers:
    table = np.random.default_rng(1).normal(size=(records, size))
    table[3, 3] = gain
    return table


@pytest.mark.parametrize("size", [100, 1000])
def test_one_leak_of_ten_reaches_the_smallest_p_value(size: int) -> None:
    groups = np.zeros(size, np.int64)
    one = summary(leaking(30.0, size), groups)
    assert single_p([one], groups) == pytest.approx(least_single_p(groups, 10), rel=0.5)
    assert exposure([one], groups).argmin() == 3
    assert exposure([one], groups)[3] == 1 / size


def test_an_adversary_without_any_spread_adds_nothing_and_another_is_still_heard() -> None:
    still = summary(np.zeros((10, 200)), np.zeros(200, np.int64))
    loud = summary(leaking(30.0, 200), np.zeros(200, np.int64))
    groups = np.zeros(200, np.int64)
    assert single_p([still], groups) == 1.0
    assert single_p([still, loud], groups) == single_p([loud], groups) < 0.02
    assert (exposure([still], groups) == 1.0).all()


def test_records_below_what_others_show_are_no_finding() -> None:
    groups = np.zeros(50, np.int64)
    assert single_p([summary(-np.eye(5, 50), groups)], groups) == 1.0


def test_without_other_peers_nothing_can_be_found() -> None:
    groups = np.arange(6)
    assert single_p([summary(leaking(9.0, 6, 6), groups)], groups) == 1.0
    assert least_single_p(groups, 6) == 1.0
