"""The laws of nuisances: how a hidden number is drawn, and how likely a guess at it is.

A law knows its sampler and its log density, entry by entry; where a solver searches for the number, its density is
the prior, its mean the start and its support the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.errors import DomainError


@dataclass(frozen=True)
class Normal:
    """``N(0, std²)``, such as the latent noise of PRECODE."""

    std: float = 1.0

    def __post_init__(self) -> None:
        guards.positive(self.std, "std", "the law normal")

    @property
    def mean(self) -> float:
        return 0.0

    @property
    def support(self) -> tuple[float, float]:
        return (-math.inf, math.inf)

    def sample(self, shape: Sequence[int], *, generator: Generator) -> Tensor:
        return self.std * torch.randn(tuple(shape), generator=generator)

    def log_density(self, value: Tensor) -> Tensor:
        return -value.square() / (2 * self.std**2) - math.log(self.std * math.sqrt(2 * math.pi))


@dataclass(frozen=True)
class Uniform:
    """``U(low, high)``, such as the perturbed rate of a local step. Equal ends are a certain number."""

    low: float
    high: float

    def __post_init__(self) -> None:
        guards.inside(self.high, "high", "the law uniform", self.low, math.inf, closed_low=True)

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def support(self) -> tuple[float, float]:
        return (self.low, self.high)

    def sample(self, shape: Sequence[int], *, generator: Generator) -> Tensor:
        # 1 − U[0, 1) lies in (0, 1]: a rate drawn from U(0, b) is never zero
        unit = 1 - torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
        return (self.low + (self.high - self.low) * unit).to(torch.get_default_dtype())

    def log_density(self, value: Tensor) -> Tensor:
        if self.low == self.high:
            return torch.where(value == self.low, 0.0, -math.inf).to(value)
        inside = (value >= self.low) & (value <= self.high)
        return torch.where(inside, value.new_tensor(-math.log(self.high - self.low)), -math.inf)


@dataclass(frozen=True)
class Bernoulli:
    """``value`` with probability ``1 − p``, else 0: the mask of a pruning (value 1) or of a dropout (1 / (1 − p)).

    A solver that searches for a mask moves it inside ``[0, value]``; the density of a point between the two ends
    interpolates their log probabilities.
    """

    p: float
    value: float = 1.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.inside(self.p, "p", "the law bernoulli", 0.0, 1.0, closed_low=True)
            guards.positive(self.value, "value", "the law bernoulli")

    @property
    def mean(self) -> float:
        return self.value * (1 - self.p)

    @property
    def support(self) -> tuple[float, float]:
        return (0.0, self.value)

    def sample(self, shape: Sequence[int], *, generator: Generator) -> Tensor:
        return self.value * (torch.rand(tuple(shape), generator=generator) >= self.p).float()

    def log_density(self, value: Tensor) -> Tensor:
        if self.p == 0:
            return torch.where(value == self.value, 0.0, -math.inf).to(value)
        share = value / self.value
        return share * math.log1p(-self.p) + (1 - share) * math.log(self.p)


@dataclass(frozen=True)
class Positive:
    """Any positive number, all equally likely: a learning rate of which nothing is known. Improper: no sampler."""

    @property
    def mean(self) -> float:
        return 1.0

    @property
    def support(self) -> tuple[float, float]:
        return (0.0, math.inf)

    def sample(self, shape: Sequence[int], *, generator: Generator) -> Tensor:
        raise DomainError("a law without a scale cannot be sampled", where="laws", remedy="give a law with bounds")

    def log_density(self, value: Tensor) -> Tensor:
        return torch.where(value > 0, 0.0, -math.inf).to(value)


__all__ = ["Bernoulli", "Normal", "Positive", "Uniform"]
