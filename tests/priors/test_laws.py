"""The laws of every registered prior. A new prior needs one row in EXAMPLES."""

import math

import pytest
import torch
from torch import Tensor

from leakgauge.batch_norm import moments
from leakgauge.expr import REGISTRY, parse
from leakgauge.priors import PriorPart
from leakgauge.types import Candidate, Seen

EXAMPLES = {
    "uniform": ["uniform()"],
    "tv": [
        "tv()",
        "tv(reduce='sum')",
        "tv(periodic=True)",
        "tv(kind='isotropic')",
        "tv(kind='isotropic', periodic=True, reduce='sum')",
        "tv(kind='quadratic')",
        "tv(kind='quadratic', periodic=True, reduce='sum')",
    ],
    "pixel_range": ["pixel_range()", "pixel_range(low=-0.5, high=0.25)"],
    "gaussian_prior": ["gaussian_prior()", "gaussian_prior(mean=0.5, std=0.2)"],
    "laplace_prior": ["laplace_prior()", "laplace_prior(mean=-1.0, scale=3.0)"],
    "norm": ["norm()", "norm(p=1.0)", "norm(p=3.5)"],
    "batch_norm": ["batch_norm()", "batch_norm(first=10.0)"],
}
COMPOSED = [
    "0.0001*tv() + 0.1*pixel_range()",
    "(0.1, 0.2, 0.3)*tv(kind='isotropic') + norm()",
    "2.0*gaussian_prior(std=0.5)",
]
SINGLE = [text for name in REGISTRY["prior"] for text in EXAMPLES.get(name, [])]
EVERY = [*SINGLE, *COMPOSED]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    # wider than [0, 1], so that the pixel range is felt; continuous, so that no kink is met
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(3).sub(1).to(dtype)


def candidate(inputs: Tensor) -> Candidate:
    """Its model is one batch norm on the inputs themselves."""

    def look(one: Candidate) -> Seen:
        channels = torch.arange(one.inputs.shape[2]).to(one.inputs)
        return Seen({}, {"0": moments(one.inputs, 1)}, {"0": (channels / 3 + 0.1, 2 + channels)})

    return Candidate(inputs, torch.zeros(inputs.shape[:2], dtype=torch.long), look=look)


def gradient(prior: PriorPart, inputs: Tensor) -> Tensor:
    leaf = inputs.clone().requires_grad_()
    return torch.autograd.grad(prior(candidate(leaf)).sum(), leaf)[0]


def test_every_registered_prior_has_an_example() -> None:
    ours = {name for name, made in REGISTRY["prior"].items() if made.__module__.startswith("leakgauge.")}
    assert ours == set(EXAMPLES)


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_value_per_problem_in_the_inputs_dtype(text: str, dtype: torch.dtype) -> None:
    value = parse(text)(candidate(draw(3, 2, 3, 5, 4, dtype=dtype)))
    assert value.shape == (3,)
    assert value.dtype == dtype
    assert value.isfinite().all()


@pytest.mark.parametrize("text", [text for text in EVERY if not text.startswith("(")])
def test_a_problem_does_not_depend_on_its_neighbours(text: str) -> None:
    prior, inputs = parse(text), draw(3, 2, 1, 4, 5)
    together = prior(candidate(inputs))
    for n in range(3):
        alone = prior(candidate(inputs[n : n + 1]))
        torch.testing.assert_close(together[n : n + 1], alone, rtol=1e-12, atol=0)
    disturbed = inputs.clone()
    disturbed[1] = math.nan
    torch.testing.assert_close(prior(candidate(disturbed))[[0, 2]], together[[0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(gradient(prior, disturbed)[[0, 2]], gradient(prior, inputs)[[0, 2]], rtol=0, atol=0)


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("seed", range(3))
def test_gradient_matches_finite_differences(text: str, seed: int) -> None:
    prior, inputs, step = parse(text), draw(3, 2, 2, 3, 4, seed=seed), 1e-6
    exact, measured = gradient(prior, inputs).flatten(1), torch.zeros(3, 2 * 2 * 3 * 4, dtype=torch.float64)
    for entry in range(measured.shape[1]):
        shift = torch.zeros_like(exact)
        shift[:, entry] = step
        ahead, behind = (prior(candidate(inputs + sign * shift.view_as(inputs))) for sign in (1, -1))
        measured[:, entry] = (ahead - behind) / (2 * step)
    torch.testing.assert_close(exact, measured, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_gradient_is_finite_at_flat_images(text: str, level: float) -> None:
    assert gradient(parse(text), torch.full((3, 1, 1, 4, 4), level)).isfinite().all()


@pytest.mark.parametrize("text", EVERY)
def test_repr_round_trip(text: str) -> None:
    prior = parse(text)
    assert repr(prior) == text
    assert parse(repr(prior)) == prior
    assert hash(parse(repr(prior))) == hash(prior)


@pytest.mark.parametrize("text", [text for text in SINGLE if not text.startswith("tv")])
def test_works_for_tables(text: str) -> None:
    assert parse(text)(candidate(draw(3, 2, 7))).shape == (3,)
