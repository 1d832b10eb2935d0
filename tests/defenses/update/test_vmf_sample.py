"""Von Mises-Fisher draws: the law they follow, extreme parameters, and their price."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from leakgauge.defenses.update.vmf_math import mean_resultant
from leakgauge.defenses.update.vmf_sample import sample, sample_gaps
from leakgauge.errors import DomainError


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.5), (3, 4.0), (5, 0.0), (5, 30.0), (20, 10.0)])
def test_cosines_follow_scipy(dim: int, kappa: float) -> None:
    ours = 1 - sample_gaps(dim, kappa, 20_000, np.random.default_rng(0))
    if kappa == 0:
        theirs = stats.uniform_direction(dim).rvs(20_000, random_state=1)[:, 0]
    else:
        theirs = stats.vonmises_fisher(np.eye(dim)[0], kappa).rvs(20_000, random_state=1)[:, 0]
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-3


@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (4, 20.0), (50, 1e3), (13_700, 1e4)])
def test_sampler_agrees_with_density(dim: int, kappa: float) -> None:
    """Kolmogorov-Smirnov against the integral of sin^{p−2}θ e^{κ cos θ}."""
    angle = np.arccos(1 - sample_gaps(dim, kappa, 5000, np.random.default_rng(0)))
    grid = np.linspace(1e-9, np.pi - 1e-9, 200_001)
    log_f = (dim - 2) * np.log(np.sin(grid)) + kappa * np.cos(grid)
    cdf = integrate.cumulative_simpson(np.exp(log_f - log_f.max()), x=grid, initial=0)
    assert stats.kstest(angle, lambda t: np.interp(t, grid, cdf / cdf[-1])).pvalue > 1e-3


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e3, 1e5, 1e9])
@pytest.mark.parametrize("dim", [2, 3, 13_700, 10**7])
def test_mean_length_is_the_bessel_ratio(dim: int, kappa: float) -> None:
    gaps = sample_gaps(dim, kappa, 4000, np.random.default_rng(0))
    assert (gaps >= 0).all()
    assert (gaps <= 2).all()
    off = gaps.mean() - (1 - mean_resultant(dim, kappa))
    assert abs(off) < 4.5 * gaps.std() / np.sqrt(4000) + 1e-15


def test_huge_concentration_keeps_the_small_angle() -> None:
    """κ(1 − w) → Gamma((p − 1)/2): at κ = 10¹⁸ the cosine rounds to 1, its gap does not."""
    scaled = 1e18 * sample_gaps(5, 1e18, 5000, np.random.default_rng(0))
    assert stats.kstest(scaled, stats.gamma(2).cdf).pvalue > 1e-3


def test_two_points_in_one_dimension() -> None:
    gaps = sample_gaps(1, 0.5, 20_000, np.random.default_rng(0))
    assert set(gaps) == {0.0, 2.0}
    assert 1 - gaps.mean() == pytest.approx(mean_resultant(1, 0.5), abs=0.02)


def test_directions_are_uniform_around_the_mean(generator: torch.Generator) -> None:
    mean = torch.tensor([0.0, 0.6, 0.8], dtype=torch.float64)
    draws = torch.stack([sample(mean, 6.0, generator=generator) for _ in range(3000)])
    assert torch.allclose(draws.norm(dim=1), torch.ones(3000, dtype=torch.float64), atol=1e-12)
    first, second = draws[:, 0], draws[:, 1] * 0.8 - draws[:, 2] * 0.6  # two axes orthogonal to the mean
    angle = torch.atan2(first, second).numpy() / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > 1e-3
    assert float((draws @ mean).mean()) == pytest.approx(mean_resultant(3, 6.0), abs=0.01)


def test_mean_length_at_the_papers_dimension(generator: torch.Generator) -> None:
    mean = torch.nn.functional.normalize(torch.randn(13_700, generator=generator, dtype=torch.float64), dim=0)
    cosines = torch.stack([sample(mean, 7000.0, generator=generator) @ mean for _ in range(200)])
    error = 4 * float(cosines.std()) / 200**0.5
    assert float(cosines.mean()) == pytest.approx(mean_resultant(13_700, 7000.0), abs=error)


def test_a_draw_is_a_function_of_the_generator() -> None:
    mean = torch.eye(4)[0]
    first, again, other = (sample(mean, 3.0, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(mean, torch.eye(4)[0])


def test_shape_and_dtype_are_those_of_the_mean(generator: torch.Generator) -> None:
    mean = torch.full((2, 3), 6**-0.5)
    draw = sample(mean, 10.0, generator=generator)
    assert draw.shape == (2, 3)
    assert draw.dtype == torch.float32


def test_ten_million_dimensions_in_float32(generator: torch.Generator) -> None:
    """Unit length to 1e-6, the right cosine, and at most five times the price of the normals (best of three)."""
    mean = torch.full((10**7,), 10**-3.5)
    times: dict[str, list[float]] = {"normals": [], "sample": []}
    for _ in range(3):
        start = time.process_time()
        torch.randn(10**7, generator=generator)
        middle = time.process_time()
        draw = sample(mean, 1e7, generator=generator)
        times["normals"].append(middle - start)
        times["sample"].append(time.process_time() - middle)
    assert float(draw.double().norm()) == pytest.approx(1, abs=1e-6)
    assert float((draw.double() * mean.double()).sum()) == pytest.approx(mean_resultant(10**7, 1e7), abs=1.5e-3)
    assert min(times["sample"]) <= 5 * min(times["normals"])


def test_bad_input(generator: torch.Generator) -> None:
    with pytest.raises(DomainError, match="length 1, got 2"):
        sample(torch.tensor([2.0, 0.0]), 1.0, generator=generator)
    with pytest.raises(DomainError, match="length 1, got nan"):
        sample(torch.tensor([torch.nan, 0.0]), 1.0, generator=generator)
    with pytest.raises(DomainError, match="kappa"):
        sample(torch.tensor([1.0, 0.0]), -1.0, generator=generator)
