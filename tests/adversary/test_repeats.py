"""Noise and masks that repeat between rounds: said where they do, and at the stated level where they do not."""

from __future__ import annotations

import time

import pytest
import torch
from scipy import stats
from torch import Tensor

from leakgauge.adversary.repeats import LEVEL, repeats
from leakgauge.defenses import GaussianNoise, LaplaceNoise, NoiseLaw

TRIALS = 200


def gradient(generator: torch.Generator, rank: int = 1) -> dict[str, Tensor]:
    """Of two linear layers: the rank of a batch, and biases."""
    sizes = {"1.weight": (16, 40), "3.weight": (10, 16)}
    weights = {
        name: torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)
        for name, (rows, columns) in sizes.items()
    }
    return {**weights, "3.bias": torch.randn(10, generator=generator)}


def rounds(seed: int, std: float, *, same: bool, law: str = "gaussian", count: int = 2) -> list[dict[str, Tensor]]:
    """Nearly the same gradient in every round, with the same or with fresh noise."""
    generator = torch.Generator().manual_seed(seed)
    start = gradient(generator)

    def noise() -> dict[str, Tensor]:
        if law == "gaussian":
            return {n: std * torch.randn(v.shape, generator=generator) for n, v in start.items()}
        uniform = {n: torch.rand(v.shape, generator=generator) - 0.5 for n, v in start.items()}
        return {n: -std * u.sign() * (1 - 2 * u.abs()).clamp(min=1e-7).log() for n, u in uniform.items()}

    first, updates = noise(), []
    for r in range(count):
        drawn = first if same else noise()
        updates.append({n: (1 - 0.1 * r) * v + drawn[n] for n, v in start.items()})
    return updates


LAWS: list[tuple[str, NoiseLaw | None]] = [
    ("gaussian", None),
    ("gaussian", GaussianNoise(0.3)),
    ("laplace", LaplaceNoise(0.3)),
]


@pytest.mark.parametrize(("name", "law"), LAWS)
def test_fresh_noise_is_not_said_to_repeat(name: str, law: NoiseLaw | None) -> None:
    said = sum(bool(repeats(rounds(t, 0.3, same=False, law=name), batch=1, law=law)) for t in range(TRIALS))
    assert said <= stats.binom.ppf(1 - 1e-6, TRIALS, LEVEL)


@pytest.mark.parametrize("std", [1e-2, 0.3, 10.0])
@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("known", [True, False])
def test_repeated_noise_is_said(name: str, std: float, known: bool) -> None:
    law: NoiseLaw = GaussianNoise(std) if name == "gaussian" else LaplaceNoise(std)
    for seed in range(5):
        (repeat,) = repeats(rounds(seed, std, same=True, law=name), batch=1, law=law if known else None)
        assert (repeat.what, repeat.first, repeat.second) == ("noise", 0, 1)
        assert "the noise of rounds 1 and 2 repeats" in str(repeat)
        assert f"level {LEVEL}" in str(repeat)


def test_of_three_rounds_the_two_that_share_their_noise_are_named() -> None:
    one, _, three = rounds(0, 0.3, same=True, count=3)
    (_, two) = rounds(0, 0.3, same=False)
    assert [(r.first, r.second) for r in repeats([one, two, three], batch=1)] == [(0, 2)]


@pytest.mark.parametrize("how", ["as it is", "pruned", "signs", "two steps"])
def test_gradients_that_resemble_each_other_are_no_noise(how: str) -> None:
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        start = gradient(generator, rank=2 if how == "two steps" else 1)
        other = {n: 0.9 * v for n, v in start.items()}
        if how == "pruned":
            start, other = ({n: torch.where(v.abs() > 0.5, v, 0.0) for n, v in g.items()} for g in (start, other))
        if how == "signs":
            start, other = ({n: v.sign() for n, v in g.items()} for g in (start, other))
        assert repeats([start, other], batch=1) == []


@pytest.mark.parametrize("same", [True, False])
def test_random_masks(same: bool) -> None:
    said = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        start = gradient(generator)
        masks = [{n: torch.rand(v.shape, generator=generator) < 0.5 for n, v in start.items()} for _ in range(2)]
        hidden = [{n: torch.where(masks[0 if same else r][n], 0.0, v) for n, v in start.items()} for r in range(2)]
        said += [repeat.what for repeat in repeats(hidden, batch=1, masked=True)] == ["mask"]
    assert said == (20 if same else 0)


def test_a_hundred_rounds_are_compared_pair_by_pair_in_seconds() -> None:
    generator = torch.Generator().manual_seed(0)
    start = {"weight": torch.randn(24, 1, generator=generator) @ torch.randn(1, 200, generator=generator)}
    many = [{"weight": start["weight"] + torch.randn(24, 200, generator=generator)} for _ in range(100)]
    many[70] = {"weight": 0.5 * start["weight"] + (many[20]["weight"] - start["weight"])}
    began = time.process_time()
    shared = repeats(many, batch=1)
    assert [(r.first, r.second) for r in shared] == [(20, 70)]
    assert time.process_time() - began < 10  # 4,950 singular value decompositions of two matrices each took over 20
