"""What a check is, what it returns, and the register of all of them.

A check is a function, registered under a name and the row (of ``rows.toml``) whose claim it measures::

    @check("delta_ball", rows="delta-ball", cost="fast")
    def delta_ball() -> Measurement:
        \"\"\"Kolmogorov-Smirnov test of the radii of 10,000 points, d = 784.\"\"\"
        p = ...
        return Measurement(value=p, passed=p > 0.01, detail="p-value, 10,000 points")

It may take one argument, a :class:`Context`, to say how far it is and to keep partial work of a long run.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Literal, get_args

Cost = Literal["fast", "minutes", "long"]
Value = float | str | Mapping[str, float | str]
Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a check found: a value, its interval, and whether it passes the bar.

    ``value`` is a number, a text, or several of them by name; ``interval`` has the same form. ``detail`` says in a
    sentence what was done (records, seeds, settings); ``table`` holds the rows behind the value, for the page.
    A NaN never passes, and an interval that does not hold its value is a mistake.
    """

    value: Value
    passed: bool
    interval: Bounds | Mapping[str, Bounds] | None = None
    detail: str = ""
    table: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        values = self.value if isinstance(self.value, Mapping) else {"": self.value}
        intervals = self.interval if isinstance(self.interval, Mapping) else {"": self.interval}
        for key, value in values.items():
            if isinstance(value, str):
                continue
            if self.passed and isnan(value):
                raise ValueError(f"a NaN cannot pass: {key or 'value'}")
            bounds = intervals.get(key)
            if bounds is not None and not bounds[0] <= value <= bounds[1]:
                raise ValueError(f"the interval {bounds} does not hold the value {value} {key}")


@dataclass(frozen=True)
class Context:
    """What a running check may use: ``say`` prints progress; ``scratch`` survives an interruption.

    ``scratch`` belongs to this check and these sources: after a change of the code it is another, empty folder.
    """

    say: Callable[[str], None]
    scratch: Path


@dataclass(frozen=True)
class Check:
    """A registered check."""

    name: str
    row: str
    cost: Cost
    function: Callable[..., Measurement]

    @property
    def about(self) -> str:
        return inspect.getdoc(self.function) or ""

    def measure(self, context: Context) -> Measurement:
        wants_context = bool(inspect.signature(self.function).parameters)
        found = self.function(context) if wants_context else self.function()
        if not isinstance(found, Measurement):
            raise TypeError(f"the check {self.name} returned {type(found).__name__}, not a Measurement")
        return found


CHECKS: dict[str, Check] = {}


def check(
    name: str, *, rows: str, cost: Cost = "fast"
) -> Callable[[Callable[..., Measurement]], Callable[..., Measurement]]:
    """Register a check under ``name`` for the row with the id ``rows``."""
    if cost not in get_args(Cost):
        raise ValueError(f"check {name}: cost must be one of {', '.join(get_args(Cost))}, got {cost!r}")

    def enter(function: Callable[..., Measurement]) -> Callable[..., Measurement]:
        if name in CHECKS:
            raise ValueError(f"the check {name!r} is registered twice")
        CHECKS[name] = Check(name, rows, cost, function)
        return function

    return enter


def load_checks(package: str = "evidence.checks") -> list[str]:
    """Import every module of the package, so that its checks register themselves; the modules that fail, and why."""
    broken = []
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        try:
            importlib.import_module(f"{package}.{module.name}")
        except Exception as fault:  # one broken module must not hide the state of the others
            broken.append(f"{package}.{module.name} cannot be imported ({type(fault).__name__}: {fault})")
    return broken
