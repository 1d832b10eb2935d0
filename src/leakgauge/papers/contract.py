"""The contract of a reproduction: the numbers that a paper prints, how we measure them, and what was reduced.

>>> from leakgauge.papers.contract import Cell, Paper, Size, Table, near
>>> def measure(sides: int) -> dict[str, list[float]]:
...     return {"mean of a die": [float(side) for side in range(1, sides + 1)]}
>>> die = Table(
...     "dice/table-1", "Table 1: one die", Paper("Somebody, Dice, 1654"),
...     cells=(Cell("mean of a die", near(3.5, 0.01)),), measure=measure,
...     sizes={"smoke": Size({"one": {"sides": 6}})},
... )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from leakgauge.errors import DomainError, nearest

if TYPE_CHECKING:
    from torch import Tensor

Scale = Literal["smoke", "small", "full"]
SCALES: tuple[Scale, ...] = ("smoke", "small", "full")
Verdict = Literal["reproduced", "holds when reduced", "differs", "cannot be run", "not run", "measured"]
Samples = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Expected:
    """What a paper says of a number: it is ``value`` up to ``tolerance``, or at least, or at most that.

    ``ours`` marks a bar that the paper does not state, such as one for a finding that it has in words or pictures.
    """

    value: float
    tolerance: float = 0.0
    sign: Literal["=", "≥", "≤"] = "="
    ours: bool = False

    def met_by(self, value: float) -> bool:
        if self.sign == "=":
            return abs(value - self.value) <= self.tolerance
        return value >= self.value if self.sign == "≥" else value <= self.value

    def reached_by(self, ends: Sequence[float]) -> bool:
        """Whether the interval between two ends (none: there is no interval) has a value that meets it."""
        if not ends:
            return False
        return any(map(self.met_by, ends)) or (self.sign == "=" and min(ends) <= self.value <= max(ends))

    def __str__(self) -> str:
        within = f" ± {self.tolerance:g}" if self.tolerance else ""
        source = " (our bar)" if self.ours else ""
        return f"{'' if self.sign == '=' else self.sign + ' '}{self.value:.9g}{within}{source}"


def near(value: float, tolerance: float, *, ours: bool = False) -> Expected:
    return Expected(value, tolerance, ours=ours)


def at_least(value: float, *, ours: bool = False) -> Expected:
    return Expected(value, sign="≥", ours=ours)


def at_most(value: float, *, ours: bool = False) -> Expected:
    return Expected(value, sign="≤", ours=ours)


@dataclass(frozen=True)
class Cell:
    """One number: what the paper says of it (None: the paper has no such number), in which unit.

    ``of`` computes it from other cells' samples, such as a difference of two columns. A ``claim`` is a finding (an
    ordering, a gap, an exact value), which even the ``smoke`` scale must show. A ``stand_in`` is measured on other data
    or another network in place of the paper's, and left out of scales that do not need it. ``missing`` says why this
    one cell cannot be run. ``within`` has the least and the largest possible value: intervals are cut there. Of a
    ``share`` every sample is one of these two (0 and 1 if ``within`` is not given): its interval is exact.
    """

    name: str
    expected: Expected | None = None
    unit: str = ""
    of: Callable[[Samples], Sequence[float]] | None = None
    claim: bool = False
    stand_in: bool = False
    missing: str = ""
    within: tuple[float, float] | None = None
    share: bool = False


def difference(one: str, other: str) -> Callable[[Samples], Sequence[float]]:
    """The paired differences of two cells' samples; equal infinities differ by 0."""
    return lambda samples: [0.0 if a == b else a - b for a, b in zip(samples[one], samples[other], strict=True)]


def mean_difference(one: str, other: str) -> Callable[[Samples], Sequence[float]]:
    """The difference of two cells' means: one number, for samples that are not paired."""
    return lambda samples: [fmean(samples[one]) - fmean(samples[other])]


@dataclass(frozen=True)
class Paper:
    """Where a table stands."""

    citation: str
    url: str = ""


@dataclass(frozen=True)
class Size:
    """What is computed at a scale: the arguments of ``measure`` for every unit of work, and what was reduced."""

    work: Mapping[str, Mapping[str, Any]]
    reduced: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """How curves are drawn: those whose names end with ``of``, which their names in the drawing lack."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    of: str = ""


@dataclass(frozen=True)
class Measured:
    """What one unit of work measured: samples by cell, remarks, curves as points, rows of pictures ``[n, C, H, W]``."""

    samples: Samples
    notes: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    pictures: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table, figure or theorem of a paper.

    ``measure`` is a function of a module that takes the arguments of one unit of work; it may return the samples alone.
    ``reasons`` says why a cell differs; that of ``""`` is for all others. ``missing`` says what the whole table lacks:
    it cannot be run. ``about`` is for readers: the conventions, and what the paper leaves open. ``grid`` says that the
    page shows the pictures that were left, row by row.
    """

    name: str
    title: str
    paper: Paper
    cells: tuple[Cell, ...]
    sizes: Mapping[Scale, Size] = field(default_factory=dict)
    measure: Callable[..., Measured | Samples] | None = None
    about: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    grid: bool = False
    missing: str = ""

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        for name in self.reasons:
            if name and name not in names:
                raise DomainError(
                    f"`reasons` names {name!r}, which is no cell", where=self.name, remedy=nearest(name, names)
                )
