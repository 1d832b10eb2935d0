"""Schedules: a factor for every step. They multiply: ``warmup(steps=10) * cosine_decay()``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from leakgauge import guards
from leakgauge.expr import Part, register


class Schedule(Part):
    """``schedule(step, steps)`` is the factor at ``step`` of ``steps``; in a sweep, one per problem."""

    def __call__(self, step: int, steps: int) -> Any:
        raise NotImplementedError

    def __mul__(self, other: Any) -> Schedule:
        if not isinstance(other, Schedule):
            return NotImplemented
        return Product((*_factors(self), *_factors(other)))


@dataclass(frozen=True, repr=False)
class Product(Schedule):
    """The product of schedules."""

    factors: tuple[Schedule, ...]

    def __call__(self, step: int, steps: int) -> Any:
        return math.prod(factor(step, steps) for factor in self.factors)

    def __repr__(self) -> str:
        return "*".join(map(repr, self.factors))


def _factors(schedule: Schedule) -> tuple[Schedule, ...]:
    return schedule.factors if isinstance(schedule, Product) else (schedule,)


@register("schedule", "constant")
@dataclass(frozen=True, repr=False)
class Constant(Schedule):
    """1 at every step."""

    def __call__(self, step: int, steps: int) -> float:
        return 1.0


@register("schedule", "step_decay")
@dataclass(frozen=True, repr=False)
class StepDecay(Schedule):
    """Times ``factor`` after each fraction in ``at``; the default is inverting gradients' x.1 at 3/8, 5/8, 7/8."""

    factor: float = 0.1
    at: tuple[float, ...] = (0.375, 0.625, 0.875)

    def __post_init__(self) -> None:
        with guards.together():
            guards.non_negative(self.factor, "factor", "step_decay")
            guards.numbers(self.at, "at", "step_decay", "(0.5, 0.75)")

    def __call__(self, step: int, steps: int) -> Any:
        return self.factor ** sum(step >= fraction * steps for fraction in self.at)


@register("schedule", "cosine_decay")
@dataclass(frozen=True, repr=False)
class CosineDecay(Schedule):
    """Half a cosine from 1 to ``floor``."""

    floor: float = 0.0

    def __post_init__(self) -> None:
        guards.non_negative(self.floor, "floor", "cosine_decay")

    def __call__(self, step: int, steps: int) -> Any:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * step / steps)) / 2


@register("schedule", "exponential")
@dataclass(frozen=True, repr=False)
class Exponential(Schedule):
    """``rate`` to the power of the step: the Bayes paper's decay at every iteration."""

    rate: float = 0.98

    def __post_init__(self) -> None:
        guards.non_negative(self.rate, "rate", "exponential")

    def __call__(self, step: int, steps: int) -> Any:
        return self.rate**step


@register("schedule", "warmup")
@dataclass(frozen=True, repr=False)
class Warmup(Schedule):
    """Linear from 1/length to 1 over the first ``length`` steps."""

    length: int = 10

    def __post_init__(self) -> None:
        guards.count(self.length, "length", "warmup")

    def __call__(self, step: int, steps: int) -> Any:
        return 1 - _positive(1 - (step + 1) / self.length)


@register("schedule", "ramp")
@dataclass(frozen=True, repr=False)
class Ramp(Schedule):
    """Geometric from ``start`` to 1 over the first ``length`` steps: the likelihood's weight in the Bayes code."""

    start: float = 1.0
    length: int = 100

    def __post_init__(self) -> None:
        with guards.together():
            guards.positive(self.start, "start", "ramp")
            guards.count(self.length, "length", "ramp")

    def __call__(self, step: int, steps: int) -> Any:
        return self.start ** _positive(1 - step / self.length)


def _positive(value: Any) -> Any:
    """``max(0, value)`` of a number, or in a sweep of a tensor of them."""
    return value.clamp(min=0.0) if isinstance(value, Tensor) else max(0.0, value)
