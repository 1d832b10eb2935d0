"""Discrete channels: the laws of leakage, over thousands of random channels, priors and gains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.bounds import Channel, deterministic, leakage, posterior_vulnerability, prior_vulnerability
from leakgauge.errors import DomainError
from tests.examples import examples

SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 6)


def channel(rng: np.random.Generator, secrets: int, observations: int) -> Channel:
    """Dense, sparse or nearly deterministic, so that the extremes are met."""
    matrix = rng.dirichlet(np.full(observations, 10.0 ** rng.uniform(-1.5, 1)), size=secrets)
    return Channel(matrix)


@examples(1500)
@given(SEEDS, SIZES, SIZES, SIZES)
def test_leakage_lies_between_one_and_the_capacity(seed: int, secrets: int, observations: int, guesses: int) -> None:
    rng = np.random.default_rng(seed)
    c = channel(rng, secrets, observations)
    prior, gain = rng.dirichlet(np.ones(secrets)), rng.random((guesses, secrets)) ** rng.integers(1, 20)
    assert 1 - 1e-12 <= leakage(prior, gain, c) <= c.capacity + 1e-12
    assert 1 - 1e-12 <= c.capacity <= min(secrets, observations) + 1e-12


@examples(1000)
@given(SEEDS, SIZES, SIZES)
def test_uniform_prior_and_identity_gain_reach_it(seed: int, secrets: int, observations: int) -> None:
    c = channel(np.random.default_rng(seed), secrets, observations)
    assert leakage(np.full(secrets, 1 / secrets), np.eye(secrets), c) == pytest.approx(c.capacity, rel=1e-12)


@examples(1000)
@given(SEEDS, SIZES, SIZES, SIZES, SIZES)
def test_processing_never_raises_it(seed: int, a: int, b: int, c: int, guesses: int) -> None:
    """Before or after, random or not; and post-processing lowers every adversary's gain, not only the worst one."""
    rng = np.random.default_rng(seed)
    first, second = channel(rng, a, b), channel(rng, b, c)
    both = first.then(second)
    assert both.capacity <= min(first.capacity, second.capacity) + 1e-12
    prior, gain = rng.dirichlet(np.ones(a)), rng.random((guesses, a))
    assert posterior_vulnerability(prior, gain, both) <= posterior_vulnerability(prior, gain, first) + 1e-12


@examples(1000)
@given(SEEDS, SIZES, SIZES, st.integers(1, 10))
def test_deterministic_pre_processing(seed: int, rows: int, observations: int, secrets: int) -> None:
    """Equal if it reaches every row; else it may only fall (the paper's lemma leaves the condition out)."""
    rng = np.random.default_rng(seed)
    c, targets = channel(rng, rows, observations), rng.integers(rows, size=secrets)
    before = deterministic(targets, rows).then(c).capacity
    if set(targets) == set(range(rows)):
        assert before == pytest.approx(c.capacity, rel=1e-12)
    else:
        assert before <= c.capacity + 1e-12


def test_the_lemma_without_its_condition_is_wrong() -> None:
    whole = Channel(np.eye(3))
    assert whole.capacity == 3
    assert deterministic([0, 0, 1], 3).then(whole).capacity == 2


@examples(1000)
@given(SEEDS, SIZES, SIZES, SIZES, SIZES)
def test_products_and_repeated_observations(seed: int, a: int, b: int, c: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    first, second, third = channel(rng, a, b), channel(rng, c, d), channel(rng, a, d)
    assert first.times(second).capacity == pytest.approx(first.capacity * second.capacity, rel=1e-12)
    together = first.beside(third).capacity
    assert max(first.capacity, third.capacity) - 1e-12 <= together <= first.capacity * third.capacity + 1e-12


def test_golden_vulnerabilities() -> None:
    """Two secrets, a symmetric channel with error ¼: guessing right goes from ½ to ¾."""
    c = Channel(np.array([[0.75, 0.25], [0.25, 0.75]]))
    uniform, identity = [0.5, 0.5], np.eye(2)
    assert prior_vulnerability(uniform, identity) == 0.5
    assert posterior_vulnerability(uniform, identity, c) == 0.75
    assert leakage(uniform, identity, c) == c.capacity == 1.5
    # a sure secret leaks nothing
    assert leakage([1.0, 0.0], identity, c) == 1


@pytest.mark.parametrize(
    "matrix", [[[0.5, 0.6]], [[1.5, -0.5]], [[np.nan, 1.0]], [0.5, 0.5], np.zeros((0, 2)), [[0.5, 0.4]]]
)
def test_a_channel_is_rows_of_probabilities(matrix: list[list[float]]) -> None:
    with pytest.raises(DomainError, match="discrete channel"):
        Channel(np.array(matrix))


def test_bad_priors_and_gains() -> None:
    c, identity = Channel(np.eye(2)), np.eye(2)
    with pytest.raises(DomainError, match="prior"):
        leakage([0.5, 0.6], identity, c)
    with pytest.raises(DomainError, match="gain"):
        leakage([0.5, 0.5], -identity, c)
    with pytest.raises(DomainError, match="got 0"):
        leakage([1.0, 0.0], [[0.0, 1.0]], c)
    with pytest.raises(DomainError, match="does not fit"):
        posterior_vulnerability([1.0], [[1.0]], c)
    with pytest.raises(DomainError, match="do not fit"):
        c.then(Channel(np.eye(3)))
    with pytest.raises(DomainError, match="differ"):
        c.beside(Channel(np.eye(3)))
    with pytest.raises(DomainError, match="targets"):
        deterministic([0, 2], 2)


def test_a_channel_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Channel(np.eye(2)).matrix[0, 0] = 0.5
