"""The laws of nuisances: the sampler draws from the density, whose mean and support are what they say."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats

from leakgauge.errors import DomainError
from leakgauge.laws import Bernoulli, Normal, Positive, Uniform
from leakgauge.types import Law

DRAWS = 20_000
CONTINUOUS: dict[str, tuple[Law, stats.rv_continuous]] = {
    "normal": (Normal(), stats.norm()),
    "normal of another size": (Normal(std=0.2), stats.norm(0, 0.2)),
    "uniform": (Uniform(0.0, 4.0), stats.uniform(0, 4)),
    "uniform below zero": (Uniform(-1.5, -0.5), stats.uniform(-1.5, 1)),
}
SAMPLED: dict[str, Law] = {
    **{name: law for name, (law, _) in CONTINUOUS.items()},
    "mask": Bernoulli(0.3),
    "dropout": Bernoulli(0.3, value=1 / 0.7),
    "nothing dropped": Bernoulli(0.0),
    "certain": Uniform(0.5, 0.5),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_density_is_scipys_and_the_sampler_follows_it(name: str) -> None:
    law, reference = CONTINUOUS[name]
    points = torch.linspace(-5, 5, 101, dtype=torch.float64)
    wanted = torch.from_numpy(reference.logpdf(points.numpy()))
    torch.testing.assert_close(law.log_density(points), wanted)
    sample = law.sample((DRAWS,), generator=generator()).double()
    assert stats.kstest(sample.numpy(), reference.cdf).pvalue > 1e-6  # a right sampler fails once in a million seeds


@pytest.mark.parametrize("law", [Bernoulli(0.3), Bernoulli(0.3, value=1 / 0.7)])
def test_the_two_values_of_a_mask_come_as_often_as_their_probabilities_say(law: Bernoulli) -> None:
    sample = law.sample((DRAWS,), generator=generator()).double()
    ends = torch.tensor([0.0, law.value], dtype=torch.float64)
    chances = law.log_density(ends).exp()
    torch.testing.assert_close(chances, torch.tensor([0.3, 0.7], dtype=torch.float64))
    for end, chance in zip(ends.tolist(), chances.tolist(), strict=True):
        share = float(((sample - end).abs() < 1e-6).double().mean())
        assert share == pytest.approx(chance, abs=5 * math.sqrt(0.3 * 0.7 / DRAWS))
    halfway = law.log_density(ends.mean())
    assert float(halfway) == pytest.approx(float(law.log_density(ends).mean()))


@pytest.mark.parametrize("name", SAMPLED)
def test_mean_support_and_shape_are_those_of_the_samples(name: str) -> None:
    law = SAMPLED[name]
    sample = law.sample((DRAWS,), generator=generator()).double()
    low, high = law.support
    # a float32 sample may be half a unit in the last place beyond an end
    slack = 1e-6 * max(1.0, abs(low) if math.isfinite(low) else 1.0)
    assert float(sample.min()) >= low - slack
    assert float(sample.max()) <= high + slack
    error = 5 * max(float(sample.std()), 1e-7) / math.sqrt(DRAWS)
    assert float(sample.mean()) == pytest.approx(law.mean, abs=error)
    assert law.sample((2, 3), generator=generator()).shape == (2, 3)
    assert torch.equal(law.sample((5,), generator=generator(1)), law.sample((5,), generator=generator(1)))
    assert not math.isinf(float(law.log_density(torch.tensor(law.mean, dtype=torch.float64))))


@pytest.mark.parametrize("law", [*SAMPLED.values(), Positive()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_log_density_has_the_precision_of_its_argument(law: Law, dtype: torch.dtype) -> None:
    value = torch.full((2, 3), law.mean, dtype=dtype)
    assert law.log_density(value).dtype == dtype
    assert law.log_density(value).shape == (2, 3)


def test_what_lies_beyond_the_ends_is_impossible() -> None:
    outside = torch.tensor([-0.1, 4.1])
    assert Uniform(0.0, 4.0).log_density(outside).tolist() == [-math.inf, -math.inf]
    assert Uniform(0.5, 0.5).log_density(torch.tensor([0.5, 0.6])).tolist() == [0.0, -math.inf]
    assert Bernoulli(0.0).log_density(torch.tensor([1.0, 0.0])).tolist() == [0.0, -math.inf]
    assert Positive().log_density(torch.tensor([1e-9, 0.0, -1.0])).tolist() == [0.0, -math.inf, -math.inf]


def test_a_perturbed_rate_is_never_zero() -> None:
    # torch.rand gives zero once in 2^53 draws, and the law maps it to the upper end
    sample = Uniform(0.0, 2.0).sample((100_000,), generator=generator())
    assert float(sample.min()) > 0


def test_a_law_without_a_scale_has_no_sampler() -> None:
    with pytest.raises(DomainError, match="laws: a law without a scale cannot be sampled; give a law with bounds"):
        Positive().sample((1,), generator=generator())


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Normal(std=0.0), r"the law normal: std must lie in \(0, ∞\), got 0"),
        (lambda: Uniform(1.0, 0.5), r"the law uniform: high must lie in \[1, ∞\), got 0.5"),
        (lambda: Uniform(0.0, math.inf), "the law uniform: high must lie in"),
        (lambda: Bernoulli(1.0), r"the law bernoulli: p must lie in \[0, 1\), got 1"),
        (lambda: Bernoulli(0.5, value=0.0), "the law bernoulli: value must lie in"),
        (lambda: Normal(std=math.nan), "got nan"),
    ],
)
def test_laws_guard_their_domain(make: Callable[[], Law], what: str) -> None:
    with pytest.raises(DomainError, match=what):
        make()
