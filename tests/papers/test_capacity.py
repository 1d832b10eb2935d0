"""The capacity paper's experiments, small: their parts do what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import leakgauge as lg
from leakgauge import bounds
from leakgauge.defenses import clip, gaussian, vmf
from leakgauge.papers.capacity.guessing import guessing
from leakgauge.papers.capacity.points import PARAMETERS, Point, mechanism, points_of
from leakgauge.papers.capacity.rank_correlation import rank_correlations

SAMPLE = "fashion_mnist_sample"


def test_the_network_has_the_papers_size() -> None:
    model = lg.models.build("cnn_13700", lg.data.load(SAMPLE).domain)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS


@pytest.mark.parametrize("epsilon", [1.0, 173.0])
def test_mechanisms_have_the_epsilon_asked_for(epsilon: float) -> None:
    one, other = (mechanism(kind, epsilon) for kind in ("gaussian", "vmf"))
    sigma = one.parts[1].std  # type: ignore[attr-defined]
    assert bounds.epsilon_of(sigma, delta=1e-5, relation="replace").epsilon == pytest.approx(epsilon)
    assert bounds.vmf_epsilon(other.parts[1].kappa) == pytest.approx(epsilon)  # type: ignore[attr-defined]
    assert mechanism("gaussian", epsilon, group=4).parts[1].std == pytest.approx(sigma / 4)  # type: ignore[attr-defined]


@pytest.mark.parametrize("noise", [gaussian(std=0.2), vmf(kappa=400.0)])
def test_guessing_one_of_a_few(noise: lg.defenses.UpdatePart) -> None:
    found = guessing(clip(norm=1.0) | noise, secrets=8, draws=150, attacked=12, name=SAMPLE)
    success = found.exact / found.draws
    assert math.exp(found.channel.log) / 8 == pytest.approx(success, abs=0.15)
    assert bounds.lower_limit(found.exact, found.draws) <= (found.bound.ceiling.value or 0)
    assert abs(found.reached - found.exact_there) <= 1


def test_a_point_for_every_mechanism_and_epsilon() -> None:
    points = points_of(SAMPLE, epsilons=(1.0, 1e6), records=2, tuning=1, steps=3, weights=(1e-4,))
    assert [(p.mechanism, p.epsilon) for p in points] == [(m, e) for m in ("gaussian", "vmf") for e in (1.0, 1e6)]
    assert all(len(p.mse) == 2 and p.protection.startswith("clip(norm=1.0, per='example') | ") for p in points)
    assert points[0].log_capacity < points[1].log_capacity


def test_rank_correlations_find_the_better_proxy() -> None:
    noise = torch.linspace(-0.01, 0.01, 5)
    points = [
        Point("d", kind, epsilon, epsilon * factor, "", 0.0, 1 - 0.1 * math.log(epsilon * factor) + noise)
        for kind, factor in (("gaussian", 30.0), ("vmf", 1.0))
        for epsilon in (1.0, 3.0, 10.0)
    ]
    found = rank_correlations(points, resamples=50)
    assert found["log capacity"].value == pytest.approx(-1)
    assert found["epsilon"].value > -0.9
    assert 0 < found["difference"].low <= found["difference"].value <= found["difference"].high


def test_directions_of_two_points_are_told_apart_as_the_formula_says() -> None:
    """Two opposite directions: right with P(⟨m, y⟩ > 0), an integral over the cosine."""
    kappa, dim = 3.0, 5
    points = np.zeros((2, dim))
    points[0, 0], points[1, 0] = 2.0, -7.0
    found = bounds.log_capacity_directions(points, kappa, rng=np.random.default_rng(0), draws=40_000)
    w = np.linspace(-1, 1, 20_001)
    density = (1 - w * w) ** ((dim - 3) / 2) * np.exp(kappa * w)
    wanted = density[w > 0].sum() / density.sum()
    assert math.exp(found.low) / 2 <= wanted <= math.exp(found.high) / 2
    assert math.exp(found.log) / 2 == pytest.approx(wanted, abs=5e-3)
    with pytest.raises(lg.errors.DomainError, match="not zero"):
        bounds.log_capacity_directions(np.zeros((2, 3)), 1.0, rng=np.random.default_rng(0))
