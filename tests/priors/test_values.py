"""Known values, normalisation and domains of the other priors; the arithmetic of all."""

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from leakgauge.errors import DomainError, ExpressionError
from leakgauge.expr import parse, read
from leakgauge.priors import PriorPart, Scaled, Sum, gaussian_prior, laplace_prior, norm, pixel_range, tv, uniform
from leakgauge.types import Candidate


def value(prior: PriorPart, inputs: Tensor) -> Tensor:
    return prior(Candidate(inputs, torch.zeros(inputs.shape[:2], dtype=torch.long)))


def density(prior: PriorPart, x: float) -> float:
    return value(prior, torch.tensor([[[x]]], dtype=torch.float64)).exp().item()


@pytest.mark.parametrize("text", ["gaussian_prior(mean=0.3, std=0.7)", "laplace_prior(mean=-2.0, scale=0.4)"])
def test_densities_are_normalised(text: str) -> None:
    prior = parse(text)
    mass = sum(integrate.quad(lambda x: density(prior, x), low, high)[0] for low, high in _sides(prior.mean))
    assert mass == pytest.approx(1, abs=1e-8)


def _sides(kink: float) -> list[tuple[float, float]]:
    return [(-math.inf, kink), (kink, math.inf)]


def test_densities_equal_scipy() -> None:
    x = torch.randn(4, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairs = [
        (gaussian_prior(0.5, 2.0), stats.norm(0.5, 2.0)),
        (laplace_prior(0.5, 2.0), stats.laplace(0.5, 2.0)),
    ]
    for prior, reference in pairs:
        np.testing.assert_allclose(value(prior, x), reference.logpdf(x.numpy()).sum((1, 2)), rtol=1e-12)


def test_known_values() -> None:
    x = torch.tensor([[[3.0, -4.0], [0.5, 0.5]]])  # one problem, two records
    assert value(uniform(), x).tolist() == [0.0]
    assert value(uniform(), x * math.nan).tolist() == [0.0]
    assert value(pixel_range(), x).tolist() == [-(2.0**2 + 4.0**2) / 2]
    assert value(pixel_range(-1.0, 2.0), x).tolist() == [-(1.0**2 + 3.0**2) / 2]
    torch.testing.assert_close(value(norm(), x), torch.tensor([-(5 + math.sqrt(0.5)) / 2]))
    assert value(norm(p=1), x).tolist() == [-4.0]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (pixel_range, {"low": 1.0, "high": 0.0}),
        (pixel_range, {"low": math.nan}),
        (gaussian_prior, {"std": 0.0}),
        (gaussian_prior, {"std": math.inf}),
        (gaussian_prior, {"mean": math.nan}),
        (laplace_prior, {"scale": -1.0}),
        (laplace_prior, {"mean": math.inf}),
        (norm, {"p": 0.5}),
        (norm, {"p": math.inf}),
    ],
)
def test_domains_are_guarded(make: type[PriorPart], options: dict[str, float]) -> None:
    with pytest.raises(DomainError) as caught:
        make(**options)
    message = str(caught.value)
    assert make.expression_name in message
    assert "must" in message
    assert repr(next(iter(options.values()))) in message


def test_sums_and_weights_flatten() -> None:
    assert 0.1 * tv() == tv() * 0.1 == Scaled(0.1, tv())
    assert 2 * (3 * tv()) == 6 * tv()
    assert 2 * (3 * tv() + norm()) == Sum((Scaled(6.0, tv()), Scaled(2.0, norm())))
    assert (tv() + norm()) + (uniform() + tv()) == Sum((tv(), norm(), uniform(), tv()))
    assert repr(2 * (3 * tv() + norm())) == "6.0*tv() + 2.0*norm()"
    assert np.float64(0.5) * tv() == 0.5 * tv()
    assert torch.tensor(0.5) * tv() == 0.5 * tv()


def test_sums_and_weights_compute() -> None:
    x = torch.rand(3, 2, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2
    expected = 0.5 * value(tv(), x) + 2 * value(norm(), x) + value(pixel_range(), x)
    torch.testing.assert_close(value(0.5 * tv() + 2 * norm() + pixel_range(), x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_weight_per_problem(dtype: torch.dtype) -> None:
    x = torch.rand(3, 1, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = torch.tensor([0.0, 0.5, 2.0], dtype=dtype)
    for prior in (weights * tv(), tv() * weights, (0.0, 0.5, 2.0) * tv()):
        assert isinstance(prior, Scaled)
        torch.testing.assert_close(value(prior, x), weights.double() * value(tv(), x))
    swept = 2.0 * (weights * tv() + norm())
    torch.testing.assert_close(value(swept, x), 2 * weights.double() * value(tv(), x) + 2 * value(norm(), x))
    assert value(swept, x).dtype == x.dtype
    assert parse(repr(swept)) == swept
    assert (weights * tv()) != (weights.flip(0) * tv())


@pytest.mark.parametrize(
    "texts",
    [
        [
            "gaussian_prior(mean=0.0, std=1.0)",
            "gaussian_prior(mean=0.5, std=2.0)",
            "gaussian_prior(mean=-1.0, std=0.1)",
        ],
        ["laplace_prior(scale=1.0)", "laplace_prior(scale=2.0)", "laplace_prior(scale=0.1)"],
        ["pixel_range(low=0.1)", "pixel_range(low=0.5)", "pixel_range(low=0.9)"],
        ["norm(p=1.0)", "norm(p=2.0)", "norm(p=3.0)"],
    ],
)
def test_one_parameter_per_problem(texts: list[str]) -> None:
    # a solver's sweep puts one number per problem where a number stands; 3 problems of width 3 tell the axes apart
    x = torch.rand(3, 2, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parts = [parse(text) for text in texts]
    swept = parse(texts[0])
    for field in fields(swept):
        numbers = [getattr(part, field.name) for part in parts]
        object.__setattr__(swept, field.name, torch.tensor(numbers, dtype=torch.float64))
    apart = [value(part, x[n : n + 1]) for n, part in enumerate(parts)]
    torch.testing.assert_close(value(swept, x), torch.cat(apart))


def test_weights_are_guarded() -> None:
    for weight in (
        -1.0,
        math.nan,
        math.inf,
        torch.tensor([1.0, -1.0]),
        torch.tensor([1.0, math.nan]),
        torch.ones(2, 2),
    ):
        with pytest.raises(DomainError, match="must"):
            weight * tv()
    with pytest.raises(DomainError, match="2 weights for 3 problems"):
        value((1.0, 2.0) * tv(), torch.zeros(3, 1, 1, 4, 4))
    for wrong in ("0.1", None, True, tv()):
        with pytest.raises(TypeError):
            wrong * tv()
    with pytest.raises(ExpressionError, match="number\\*prior"):
        parse("tv() + 1.0")


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("tv(kind='x', reduce='y', smoothing=-1, periodic=2)", ("kind", "reduce", "smoothing", "periodic")),
        ("pixel_range(low='a', high=None)", ("low", "high")),
        ("gaussian_prior(mean='x', std=True)", ("mean", "std")),
        ("laplace_prior(mean='x', scale='y')", ("mean", "scale")),
        ("norm(p='two')", ("p",)),
        ("batch_norm(first='ten')", ("first",)),
    ],
)
def test_every_wrong_setting_is_named_at_once(text: str, settings: tuple[str, ...]) -> None:
    faults = read(text, "prior").faults
    assert all(isinstance(fault, DomainError) and fault.remedy for fault in faults)
    assert len(faults) == len(settings)
    for name in settings:
        assert any(name in fault.what for fault in faults)
