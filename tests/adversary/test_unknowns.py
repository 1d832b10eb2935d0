"""Unknowns: raw numbers that a solver moves freely, the values they stand for, and their log priors."""

from __future__ import annotations

import math

import pytest
import torch

from leakgauge.adversary.unknowns import Block, Unknowns
from leakgauge.laws import Bernoulli, Normal, Positive, Uniform
from leakgauge.types import Law

LIKE = torch.zeros(0, dtype=torch.float64)
LAWS: dict[str, Law] = {
    "normal": Normal(),
    "uniform": Uniform(0.0, 4.0),
    "uniform off zero": Uniform(0.5, 1.5),
    "certain": Uniform(0.75, 0.75),
    "mask": Bernoulli(0.3),
    "dropout": Bernoulli(0.3, value=1 / 0.7),
    "positive": Positive(),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_nuisance_begins_at_the_mean_of_its_law(name: str) -> None:
    block = Block.of_law(LAWS[name], (2, 3), LIKE, 1.0)
    assert block.start.shape == (2, 3)
    assert block.start.dtype == torch.float64
    assert bool(block.start.isfinite().all())
    torch.testing.assert_close(block.decode(block.start), torch.full((2, 3), LAWS[name].mean, dtype=torch.float64))


@pytest.mark.parametrize("name", LAWS)
def test_whatever_the_raw_numbers_their_values_lie_in_the_support_and_have_a_slope(name: str) -> None:
    law = LAWS[name]
    block = Block.of_law(law, (1, 1), LIKE, 1.0)
    raw = torch.linspace(-30, 30, 201, dtype=torch.float64).requires_grad_()
    values, (low, high) = block.decode(raw), law.support
    assert bool(((values >= low) & (values <= high)).all())
    (slope,) = torch.autograd.grad(values.sum(), raw)
    assert bool((slope > 0).all()) or low == high


@pytest.mark.parametrize("name", [name for name in LAWS if name != "certain"])
def test_decoding_turns_encoding_back(name: str) -> None:
    """Any value inside the support is reached: what decodes to it is the start of a law whose mean it is."""
    law = LAWS[name]

    class Moved:
        """The same law with another mean: where a block begins is the encoding of the mean."""

        def __init__(self, mean: float) -> None:
            self.mean, self.support, self.log_density = mean, law.support, law.log_density

    low, high = law.support
    inside = {
        (True, True): [low + share * (high - low) for share in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6)],
        (True, False): [low + size for size in (1e-8, 0.3, 7.0, 1e5)],
        (False, False): [-40.0, -0.1, 0.0, 3.0],
    }[math.isfinite(low), math.isfinite(high)]
    for value in inside:
        block = Block.of_law(Moved(value), (1,), LIKE, 1.0)  # type: ignore[arg-type]
        torch.testing.assert_close(block.decode(block.start), torch.tensor([value], dtype=torch.float64))


def test_log_priors_are_weighted_sums_over_what_belongs_to_one_problem() -> None:
    values = torch.tensor([[[0.5, -1.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    wanted = -values.square().sum((1, 2)) / 2  # relative to the mean
    for weight in (0.0, 1.0, 3.0):
        block = Block.of_law(Normal(), (2, 2, 2), LIKE, weight)
        assert block.log_prior is not None
        torch.testing.assert_close(block.log_prior(values), weight * wanted)


def test_a_rate_of_one_number_per_problem_has_a_prior_too() -> None:
    block = Block.of_law(Positive(), (3,), LIKE, 1.0)
    assert block.log_prior is not None
    assert block.log_prior(block.decode(block.start)).tolist() == [0.0, 0.0, 0.0]


def test_blocks_are_decoded_by_name_and_their_priors_add_up() -> None:
    box = (0.0, 1.0)
    unknowns = Unknowns(
        {
            "inputs": Block(torch.rand(2, 1, 4), box=box),
            "labels": Block(torch.zeros(2, 1, 3), decode=lambda raw: raw.softmax(-1)),
            "0/lrp.scale": Block.of_law(Uniform(0.0, 4.0), (2, 3), LIKE, 1.0),
            "0/precode.noise": Block.of_law(Normal(), (2, 1, 5), LIKE, 2.0),
        }
    )
    assert set(unknowns.start) == set(unknowns.blocks)
    assert unknowns.box == {"inputs": box}
    values = unknowns.decode(unknowns.start)
    assert torch.equal(values["inputs"], unknowns.start["inputs"])
    torch.testing.assert_close(values["labels"], torch.full((2, 1, 3), 1 / 3))
    assert unknowns.log_prior(values).tolist() == [0.0, 0.0]  # each relative to its mean, where it begins
    moved = {**values, "0/precode.noise": values["0/precode.noise"] + 0.5}
    torch.testing.assert_close(unknowns.log_prior(moved), torch.full((2,), -2 * 5 * 0.125, dtype=torch.float64))
    assert Unknowns({"inputs": Block(torch.rand(2, 4))}).log_prior({"inputs": torch.rand(2, 4)}) == 0.0


def test_a_flat_prior_does_not_drown_small_residuals() -> None:
    """A uniform law adds no constant: beside log 2 per step, float32 could not tell residuals below 1e-7 apart."""
    block = Block.of_law(Uniform(0.0, 2.0), (1, 5), torch.zeros(0, dtype=torch.float32), 1.0)
    assert block.log_prior is not None
    objective = torch.tensor([-1e-9]) + block.log_prior(torch.full((1, 5), 0.3))
    assert float(objective) == pytest.approx(-1e-9)
