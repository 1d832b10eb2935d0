"""Rounds that differ in Gaussian noise alone are attacked by their mean, which says as much and costs one round."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.attacks import adaptive
from leakgauge.attacks.averaging import averages, by_means, with_means
from leakgauge.metrics import psnr
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 6, 6), 4)
ROUNDS = 8


def task(defense: str, **recipe: object) -> lg.Task:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.Sigmoid(), nn.Linear(12, 4))
    own = lg.Task(model, DOMAIN, lg.Recipe(**recipe)).to(dtype=torch.float64)  # type: ignore[arg-type]
    return own.protect(defense) if defense else own


def records(count: int = 2) -> Records:
    generator = torch.Generator().manual_seed(3)
    return Records(torch.rand(count, 1, 6, 6, generator=generator).double(), torch.tensor([2, 0])[:count], DOMAIN)


@pytest.mark.parametrize("defense", ["gaussian(std=0.05)", "clip(norm=1.0) | gaussian(std=0.05)"])
def test_the_mean_gives_what_all_rounds_together_give(defense: str) -> None:
    own = task(defense)
    observed = lg.observe(own, records(), seed=1, rounds=ROUNDS)
    attack = adaptive(steps=25)
    how = {"seed": 0, "device": None, "path": "auto", "memory": 1 << 30, "progress": None}
    added, mean = attack._invert(own, observed, how), attack(own, observed)
    # the same objective but for a constant, in float64: rounding grows over 25 steps, and stays far below a pixel
    assert float((added.inputs - mean.inputs).abs().max()) < 1e-6


def test_the_noise_of_a_mean_is_explained() -> None:
    own = task("gaussian(std=0.4)")
    (one,) = lg.observe(own, records(1), seed=1, rounds=4)
    note = "4 rounds are attacked by their mean: gaussian(std=0.4) becomes gaussian(std=0.2)"
    assert note in adaptive(steps=1)(own, [one]).notes
    assert note not in adaptive(steps=1)(own, [replace(one, rounds=one.rounds[:1])]).notes


def test_more_rounds_show_more() -> None:
    own, truth = task("gaussian(std=0.3)"), records()
    observed = lg.observe(own, truth, seed=1, rounds=40)
    scores = []
    for count in (1, 6, 40):
        some = [replace(one, rounds=one.rounds[:count]) for one in observed]
        scores.append(float(psnr(adaptive(steps=60, tv_density=0.1)(own, some).inputs[:, 0], truth.inputs).mean()))
    assert scores[0] < scores[1] < scores[2]


@pytest.mark.parametrize(
    ("defense", "recipe"),
    [
        ("laplace(scale=0.1)", {}),
        ("gaussian(std=0.1) | prune(0.5)", {}),
        ("random_prune(0.5) | gaussian(std=0.1)", {}),
        ("lrp() | gaussian(std=0.1)", {"shares": "change"}),
        ("mixup(k=2) | gaussian(std=0.1)", {}),
        ("", {}),
    ],
)
def test_rounds_that_differ_in_more_are_left_alone(defense: str, recipe: dict[str, object]) -> None:
    own = task(defense, **recipe)
    for one in lg.observe(own, records(), seed=1, rounds=2):
        assert not averages(own, one)


def test_rounds_at_other_weights_are_left_alone() -> None:
    own = task("gaussian(std=0.1)")
    moved = {name: p + 0.01 for name, p in own.params.items()}
    for one in lg.observe(own, records(), seed=1, rounds=[own.params, moved]):
        assert not averages(own, one)
    equal = {name: p.clone() for name, p in own.params.items()}
    for one in lg.observe(own, records(), seed=1, rounds=[own.params, equal]):
        assert averages(own, one)
    single = lg.observe(own, records(), seed=1, rounds=1)[0]
    assert not averages(own, single)


def test_observations_of_different_rounds_keep_their_places() -> None:
    own = task("gaussian(std=0.1)")
    short, long = lg.observe(own, records(), seed=1, rounds=3)
    short = replace(short, rounds=short.rounds[:1])
    several = adaptive(steps=5)(own, [long, short])
    assert several.inputs.shape[0] == 2
    alone = by_means(own, [short], lambda used, some: adaptive(steps=5)(used, some))
    assert float((several.inputs[1] - alone.inputs[0]).abs().max()) < 1e-9
    assert with_means(own, 1) is own
