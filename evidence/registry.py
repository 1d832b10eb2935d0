"""What a check is, and the register of all of them.

A check is a function, registered under a name and the row (of ``rows.toml``) whose claim it measures::

    @check("delta_ball", rows="delta-ball", cost="fast")
    def delta_ball() -> Measurement:
        \"\"\"Kolmogorov-Smirnov test of the radii of 10,000 points, d = 784.\"\"\"
        p = ...
        return Measurement({"p-value": Number(p, above(0.01))}, detail="10,000 points")

It may take one argument, a :class:`Context`, to say how far it is and to keep partial work of a long run. What it
depends on without importing it (a program that it starts, a file that it reads) is named by ``uses``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from evidence.measurement import Measurement
from evidence.sources import is_module

Cost = Literal["fast", "minutes", "long"]


@dataclass(frozen=True)
class Context:
    """What a running check may use: ``say`` prints progress; ``scratch`` survives an interruption.

    ``scratch`` belongs to this check and its code: after a change of the code it is another, empty folder.
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
    uses: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def other_modules(self) -> bool:
        """Whether it uses modules that it does not import itself: they run in other processes."""
        return any(map(is_module, self.uses))

    def measure(self, context: Context) -> Measurement:
        wants_context = bool(inspect.signature(self.function).parameters)
        measurement = self.function(context) if wants_context else self.function()
        if not isinstance(measurement, Measurement):
            raise TypeError(f"the check {self.name} returned {type(measurement).__name__}, not a Measurement")
        return measurement


CHECKS: dict[str, Check] = {}


def check(
    name: str, *, rows: str, cost: Cost = "fast", uses: tuple[str, ...] = ()
) -> Callable[[Callable[..., Measurement]], Callable[..., Measurement]]:
    """Register a check under ``name`` for the row with the id ``rows``.

    ``uses`` names modules (``leakgauge.cli``), files and folders (``examples/demo.toml``) that it uses unimported.
    """
    if cost not in get_args(Cost):
        raise ValueError(f"check {name}: cost must be one of {', '.join(get_args(Cost))}, got {cost!r}")

    def enter(function: Callable[..., Measurement]) -> Callable[..., Measurement]:
        if name in CHECKS:
            raise ValueError(f"the check {name!r} is registered twice")
        CHECKS[name] = Check(name, rows, cost, function, uses)
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
