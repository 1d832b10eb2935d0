"""Total variation against plain loops, and its edges."""

import itertools
import math

import numpy as np
import pytest
import torch

from leakgauge.errors import DomainError
from leakgauge.priors import tv
from leakgauge.types import Candidate

KINDS = ["anisotropic", "isotropic", "quadratic"]


def value(prior: tv, images: np.ndarray) -> np.ndarray:
    inputs = torch.as_tensor(images)
    return prior(Candidate(inputs, torch.zeros(inputs.shape[:2], dtype=torch.long))).numpy()


def by_loops(images: np.ndarray, kind: str, periodic: bool, reduce: str) -> float:
    """The definition, pixel by pixel, for one problem ``[B, C, H, W]``."""
    batch, channels, height, width = images.shape
    across, down, both = [], [], []
    for b, c, i, j in itertools.product(range(batch), range(channels), range(height), range(width)):
        x = images[b, c]
        dx = x[i, (j + 1) % width] - x[i, j] if periodic or j + 1 < width else None
        dy = x[(i + 1) % height, j] - x[i, j] if periodic or i + 1 < height else None
        across += [dx] if dx is not None else []
        down += [dy] if dy is not None else []
        both.append(math.sqrt((dx or 0.0) ** 2 + (dy or 0.0) ** 2 + 1e-8))
    total = sum if reduce == "sum" else (lambda values: sum(values) / len(values) if values else 0.0)
    if kind == "isotropic":
        return -total(both)
    size = abs if kind == "anisotropic" else (lambda d: d * d)
    return -(total([size(d) for d in across]) + total([size(d) for d in down]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 6, 6), (1, 1, 5), (1, 5, 1), (1, 1, 1), (2, 2, 2)])
def test_equals_a_plain_loop(kind: str, periodic: bool, reduce: str, shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).normal(size=(2, 3, *shape))
    expected = [by_loops(problem, kind, periodic, reduce) for problem in images]
    np.testing.assert_allclose(value(tv(kind, periodic, reduce), images), expected, rtol=1e-12)


def test_known_values() -> None:
    image = np.array([[0.0, 1.0], [0.0, 1.0]]).reshape(1, 1, 1, 2, 2)
    assert value(tv(), image) == -1.0  # both dx are 1, both dy 0
    assert value(tv(reduce="sum"), image) == -2.0
    assert value(tv(kind="quadratic", periodic=True, reduce="sum"), image) == -4.0  # the wrap counts each step twice
    np.testing.assert_allclose(value(tv(kind="isotropic"), image), -0.5, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("periodic", [False, True])
def test_no_image_beats_a_flat_one(kind: str, periodic: bool) -> None:
    prior = tv(kind, periodic)
    flat = value(prior, np.full((1, 1, 1, 5, 5), 0.7))
    assert (value(prior, np.random.default_rng(0).random((20, 1, 1, 5, 5))) < flat).all()


@pytest.mark.parametrize("shape", [(2, 1, 784), (2, 1, 28, 28), (2, 28)])
def test_what_is_no_image_has_no_neighbours(shape: tuple[int, ...]) -> None:
    assert (value(tv(), np.random.default_rng(0).random(shape)) == 0).all()


@pytest.mark.parametrize("options", [{"kind": "diagonal"}, {"reduce": "max"}])
def test_refuses_unknown_options(options: dict[str, str]) -> None:
    with pytest.raises(DomainError, match=next(iter(options.values()))):
        tv(**options)


def test_smoothing_rounds_off_zero_and_nothing_else() -> None:
    images = torch.tensor([0.0, 0.0, 1.0]).view(1, 1, 1, 1, 3).requires_grad_()
    smooth = tv(smoothing=0.01)(Candidate(images, torch.zeros(1, 1, dtype=torch.long)))
    expected = (math.sqrt(1 + 0.01**2) - 0.01) / 2  # one of two differences is 1, the other 0
    assert smooth.item() == pytest.approx(-expected, rel=1e-6)
    (slope,) = torch.autograd.grad(smooth.sum(), images)
    assert float(slope.flatten()[0]) == 0  # flat there, on both sides
    with pytest.raises(DomainError, match="smoothing"):
        tv(smoothing=-1.0)
