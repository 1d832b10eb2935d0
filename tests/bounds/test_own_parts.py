"""A clipping, a noise and a law from somebody else's package get a bound, if they promise what proofs need."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from leakgauge import bounds
from leakgauge.bounds import bound_of
from leakgauge.defenses import GaussianNoise, NoiseLaw, Release, Sensitivity, UpdatePart, clip, gaussian
from leakgauge.testing import promises_are_kept

Tree = Mapping[str, torch.Tensor]
SIZES = {"first.weight": 300, "first.bias": 20, "last.weight": 180}


@dataclass(frozen=True, repr=False)
class Squashed(UpdatePart):
    """``u ↦ C u / (C + ‖u‖)``: shorter than C, and never cut off. Moves no two updates apart."""

    norm: float
    post_processing: ClassVar[bool] = True

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before.clipped(self.norm)

    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        length = torch.stack([value.norm() for value in update.values()]).norm()
        return Release({name: value * self.norm / (self.norm + length) for name, value in update.items()})


@dataclass(frozen=True, repr=False)
class Summed(UpdatePart):
    """Gaussian noise drawn as a sum of four independent shares, as four servers would."""

    share: float
    post_processing: ClassVar[bool] = True

    @property
    def noise_law(self) -> GaussianNoise:
        return GaussianNoise(2 * self.share)

    def with_noise(self, size: float) -> Summed:
        return Summed(size / 2)

    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        def noisy(value: torch.Tensor) -> torch.Tensor:
            return value + self.share * torch.randn((4, *value.shape), generator=generator, dtype=value.dtype).sum(0)

        return Release({name: noisy(value) for name, value in update.items()})


@pytest.mark.parametrize("part", [Squashed(2.0), Summed(0.25)], ids=repr)
def test_their_promises_are_kept(part: UpdatePart) -> None:
    promises_are_kept(part)


def test_they_get_the_bound_of_their_promises() -> None:
    ours = bound_of(clip(2.0) | gaussian(0.5), SIZES, guess=0.01, delta=1e-5, rounds=3)
    for chain in (Squashed(2.0) | Summed(0.25), clip(2.0) | Summed(0.25), Squashed(2.0) | gaussian(0.5)):
        theirs = bound_of(chain, SIZES, guess=0.01, delta=1e-5, rounds=3)
        assert (theirs.log_capacity, theirs.epsilon, theirs.ceiling) == (ours.log_capacity, ours.epsilon, ours.ceiling)
        assert theirs.ceiling.value is not None
        assert theirs.unit == "client"


def test_without_promises_there_is_a_sentence_and_no_bound() -> None:
    @dataclass(frozen=True, repr=False)
    class Silent(Summed):
        noise_law: ClassVar[None] = None  # type: ignore[assignment]

    nothing = bound_of(clip(1.0) | Silent(0.25), SIZES, guess=0.1)
    assert nothing.ceiling.value is None
    assert "adds no noise" in nothing.ceiling.sentence
    unclipped = bound_of(Summed(0.25), SIZES, guess=0.1)
    assert "nothing clips the update before" in unclipped.ceiling.sentence


@dataclass(frozen=True)
class Uniform(NoiseLaw):
    """Independent noise between −width and width."""

    width: float


@dataclass(frozen=True, repr=False)
class Jitter(UpdatePart):
    width: float
    post_processing: ClassVar[bool] = True

    @property
    def noise_law(self) -> Uniform:
        return Uniform(self.width)

    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        draw = {n: torch.rand(v.shape, generator=generator, dtype=v.dtype) for n, v in update.items()}
        return Release({name: value + self.width * (2 * draw[name] - 1) for name, value in update.items()})


@dataclass(frozen=True)
class UniformProof:
    """``C = vol(box of half-width w + R) / vol(box of half-width w)`` at most: every entry lies within R."""

    width: float

    def log_capacity(self, at: Sensitivity) -> float:
        return at.dim * math.log1p(at.radius / self.width)

    def epsilon(self, at: Sensitivity, rounds: int, delta: float | None) -> bounds.Figure:
        return bounds.Figure(None, "uniform noise has no finite ε")

    def ceiling(self, at: Sensitivity, rounds: int, guess: float) -> None:
        return None


@pytest.fixture
def registered() -> Iterator[None]:
    bounds.proof_of.register(Uniform)(lambda law: UniformProof(law.width))
    yield
    bounds.proof_of.register(Uniform)(bounds.proof_of.dispatch(object))


def test_a_law_without_a_proof_says_where_to_put_one() -> None:
    unproven = bound_of(clip(1.0) | Jitter(3.0), 2, guess=0.1)
    assert unproven.log_capacity.value is None
    assert "no proof is registered for the law Uniform(width=3.0)" in unproven.log_capacity.sentence


@pytest.mark.usefixtures("registered")
def test_a_law_with_a_proof_gets_its_bound() -> None:
    found = bound_of(clip(1.0) | Jitter(3.0), 2, guess=0.1)
    assert found.log_capacity.value == pytest.approx(2 * math.log(4 / 3))
    assert found.ceiling.value == pytest.approx(0.1 * (4 / 3) ** 2)
