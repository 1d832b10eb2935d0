"""The exception tree. Every error says where, what and the remedy.

LeakgaugeError
├── ExpressionError      a malformed expression or an unknown name
├── DomainError          a number outside a formula's domain
├── DataError            a data file that cannot be read
│   └── MissingDataError a data set that is not on this machine
├── ModelError           a model that cannot be built or traced
├── ObservationError     an observed update that does not fit the task
├── NoDensityError       a part, or chain of parts, without a density
├── NoBoundError         a protection of which nothing is proven
├── PathError            a fast gradient path that disagrees with the plain one
└── MissingExtraError    an optional dependency that is not installed
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class LeakgaugeError(Exception):
    """Something the user can act on: ``where: what; remedy``."""

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.where, self.what, self.remedy = where, what, remedy
        super().__init__(what)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; {self.remedy}" if self.remedy else head


class ExpressionError(LeakgaugeError):
    """A malformed expression or an unknown name."""


class DomainError(LeakgaugeError, ValueError):
    """A number outside a formula's domain."""


class DataError(LeakgaugeError):
    """A data file that cannot be read."""


class MissingDataError(DataError):
    """A data set that is not on this machine; the remedy is one command."""


class ModelError(LeakgaugeError):
    """A model that cannot be built or traced."""


class ObservationError(LeakgaugeError):
    """An observed update that does not fit the task."""


class NoDensityError(LeakgaugeError):
    """A part, or a chain of parts, without a density."""


class NoBoundError(LeakgaugeError):
    """A protection of which nothing is proven: what stands in the way, and what to change."""


class PathError(LeakgaugeError):
    """A fast gradient path that disagrees with the plain one."""


class MissingExtraError(LeakgaugeError):
    """An optional dependency that is not installed; the remedy is one command."""


class AssumptionWarning(UserWarning):
    """An attack goes on with an assumption of its own, since what it was given has no likelihood."""


def nearest(name: str, names: Iterable[str]) -> str:
    """The remedy for an unknown name: the nearest valid one, else all of them."""
    known = sorted(names)
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
