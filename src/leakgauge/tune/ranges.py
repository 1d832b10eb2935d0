"""Ranges: what one dimension of a search may be, as it is written in an expression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leakgauge.errors import ExpressionError, brief
from leakgauge.expr import format_value

DIGITS = 4
"""Significant digits of a value that is tried: more would make no difference, and settings are copied by hand."""
LARGEST = 2**53
"""Whole numbers beyond it are not told apart by the arithmetic that proposes them."""


@dataclass(frozen=True)
class Log:
    """A number between two positive ones, its logarithm uniform: ``log(1e-5, 1e-1)``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, "log")
        if self.low <= 0:
            raise ExpressionError(
                f"log({self.low:g}, {self.high:g}) begins at {self.low:g}",
                where="space",
                remedy="begin above 0, or say linear(…)",
            )

    def points(self, count: int) -> list[Any]:
        """So many values for a grid, both ends among them."""
        return [self.rounded(value) for value in np.geomspace(self.low, self.high, count).tolist()]

    def count(self, points: int) -> int:
        """How many values :meth:`points` gives."""
        return points

    def rounded(self, value: Any) -> Any:
        """A value as it is written into an expression."""
        return _rounded(value, self.low, self.high)


@dataclass(frozen=True)
class Linear:
    """A number between two others, uniform: ``linear(0.1, 0.9)``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, "linear")

    def points(self, count: int) -> list[Any]:
        return [self.rounded(value) for value in np.linspace(self.low, self.high, count).tolist()]

    def count(self, points: int) -> int:
        return points

    def rounded(self, value: Any) -> Any:
        return _rounded(value, self.low, self.high)


@dataclass(frozen=True)
class Whole:
    """A whole number between two others, both included: ``whole(1, 8)``."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not all(isinstance(end, int) and not isinstance(end, bool) for end in (self.low, self.high)):
            raise ExpressionError(
                f"whole({self.low!r}, {self.high!r}) has ends that are not whole",
                where="space",
                remedy="say whole(1, 8)",
            )
        _check_ends(self.low, self.high, "whole")
        if max(-self.low, self.high) > LARGEST:
            raise ExpressionError(
                f"whole({self.low:g}, {self.high:g}) reaches beyond 2⁵³", where="space", remedy="give smaller numbers"
            )

    def points(self, count: int) -> list[Any]:
        return sorted({round(value) for value in np.linspace(self.low, self.high, count).tolist()})

    def count(self, points: int) -> int:
        return min(points, self.high - self.low + 1)

    def rounded(self, value: Any) -> Any:
        return int(value)


@dataclass(frozen=True)
class Choice:
    """One of several texts, each a literal or an expression: ``choice("soft", "hard")``, ``choice(l2(), cosine())``."""

    options: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.options) < 2 or len(set(self.options)) < len(self.options):
            raise ExpressionError(
                f"choice({', '.join(self.options)}) has no two different options",
                where="space",
                remedy='give at least two, all different: choice("soft", "hard")',
            )

    def points(self, count: int) -> list[Any]:
        return list(self.options)

    def count(self, points: int) -> int:
        return len(self.options)

    def rounded(self, value: Any) -> Any:
        return value


Range = Log | Linear | Whole | Choice
NUMERIC: dict[str, type[Log] | type[Linear] | type[Whole]] = {"log": Log, "linear": Linear, "whole": Whole}
NAMES = (*NUMERIC, "choice")


def written(within: Range) -> str:
    """A range as it is written in an expression."""
    if isinstance(within, Choice):
        return f"choice({', '.join(within.options)})"
    name = next(name for name, kind in NUMERIC.items() if isinstance(within, kind))
    return f"{name}({format_value(within.low)}, {format_value(within.high)})"


def text_of(within: Range, value: Any) -> str:
    """A value as it stands in an expression: options are texts already."""
    return str(value) if isinstance(within, Choice) else format_value(value)


def range_of(name: str, arguments: Sequence[str], numbers: Sequence[Any]) -> Range:
    """The range of that name; ``numbers`` are its arguments as literals, None where one is an expression."""
    if name == "choice":
        return Choice(tuple(arguments))
    if len(numbers) != 2 or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        raise ExpressionError(
            f"{name}({', '.join(arguments)}) is no range", where="space", remedy=f"give two numbers: {name}(1, 10)"
        )
    return NUMERIC[name](*numbers)


def _check_ends(low: float, high: float, name: str) -> None:
    if not (_is_finite(low) and _is_finite(high) and low < high):
        ends = ", ".join(f"{end:g}" if _is_finite(end) else brief(str(end), 20) for end in (low, high))
        raise ExpressionError(
            f"{name}({ends}) is empty", where="space", remedy="give two finite numbers, the lower one first"
        )


def _is_finite(end: float) -> bool:
    try:
        return math.isfinite(end)
    except OverflowError:  # an integer of more than 308 digits
        return False


def _rounded(value: float, low: float, high: float) -> float:
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)


__all__ = ["NAMES", "Choice", "Linear", "Log", "Range", "Whole", "range_of", "text_of", "written"]
