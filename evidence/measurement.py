"""What a check returns: numbers, each beside the bar that it must meet. Nobody says "passed"; it follows from these.

Measurement({"p-value": Number(p, above(0.01))}, detail="5,000 points")
Measurement(numbers(means, bounds, {"adaptive": at_least(28), "gain": at_least(15)}))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal, get_args

Comparison = Literal[">=", ">", "<=", "<", "==", "within"]
Interval = tuple[float, float]
SIGNS = {">=": "≥", ">": ">", "<=": "≤", "<": "<", "==": "="}


@dataclass(frozen=True)
class Bar:
    """What a number must be: ``comparison`` to ``limit``; ``within`` means at most ``tolerance`` away from it.

    A text ("not installed") and a NaN meet no bar.
    """

    comparison: Comparison
    limit: float
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.comparison not in get_args(Comparison):
            raise ValueError(
                f"the comparison of a bar must be one of {', '.join(get_args(Comparison))}, got {self.comparison!r}"
            )
        if isnan(self.limit) or not self.tolerance >= 0:
            raise ValueError(
                f"a bar needs a limit and a tolerance of at least 0, got {self.limit!r} and {self.tolerance!r}"
            )

    def met_by(self, value: float | str) -> bool:
        """Whether a value meets the bar."""
        if isinstance(value, str):
            return False
        return {
            ">=": value >= self.limit,
            ">": value > self.limit,
            "<=": value <= self.limit,
            "<": value < self.limit,
            "==": value == self.limit,
            "within": abs(value - self.limit) <= self.tolerance,
        }[self.comparison]


def at_least(limit: float) -> Bar:
    return Bar(">=", limit)


def above(limit: float) -> Bar:
    return Bar(">", limit)


def at_most(limit: float) -> Bar:
    return Bar("<=", limit)


def below(limit: float) -> Bar:
    return Bar("<", limit)


def exactly(limit: float) -> Bar:
    return Bar("==", limit)


def within(tolerance: float, of: float) -> Bar:
    """At most ``tolerance`` away from ``of``."""
    return Bar("within", of, tolerance)


@dataclass(frozen=True)
class Number:
    """One number (or a text where there is none), its bar, and its interval. Without a bar it is only reported."""

    value: float | str
    bar: Bar | None = None
    interval: Interval | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and not isinstance(self.value, str):
            low, high = self.interval
            if not (low <= self.value <= high or isnan(self.value)):
                raise ValueError(f"the interval {self.interval} does not hold the value {self.value}")

    @property
    def meets(self) -> bool | None:
        """Whether the number meets its bar; None where it has none."""
        return None if self.bar is None else self.bar.met_by(self.value)


@dataclass(frozen=True)
class Measurement:
    """The numbers that a check measured, by name.

    ``detail`` says in a sentence what was done (records, seeds, settings); ``table`` holds the rows behind the numbers,
    for the page. Every number that a claim speaks of is here with its bar, a difference of two others as well.
    """

    numbers: Mapping[str, Number]
    detail: str = ""
    table: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if not self.numbers:
            raise ValueError("a measurement needs at least one number")

    @property
    def passed(self) -> bool | None:
        """Whether every number with a bar meets it; None where no number has one."""
        return verdict(self.numbers)


def verdict(numbers: Mapping[str, Number]) -> bool | None:
    """True if every bar is met, False if one is not, None if there is none."""
    verdicts = [number.meets for number in numbers.values() if number.bar is not None]
    return all(verdicts) if verdicts else None


def numbers(
    values: Mapping[str, float | str],
    intervals: Mapping[str, Interval] | None = None,
    bars: Mapping[str, Bar] | Bar | None = None,
) -> dict[str, Number]:
    """Values by name with their intervals and bars; one bar alone is the bar of each of them."""
    intervals = intervals or {}
    each = dict.fromkeys(values, bars) if isinstance(bars, Bar) else dict(bars or {})
    for name in (*intervals, *each):
        if name not in values:
            raise ValueError(f"an interval or a bar for {name!r}, which is none of the values: {', '.join(values)}")
    return {name: Number(value, each.get(name), intervals.get(name)) for name, value in values.items()}
