"""The exception tree. Every error says where, what and the remedy.

LeakgaugeError
├── ExpressionError      a malformed expression or an unknown name
│   └── SeveralFaultsError   several of them in one expression
├── DomainError          a number outside a formula's domain
│   └── SeveralDomainFaultsError   several of them
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

import importlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import ClassVar
from unicodedata import category


class ExitCode(IntEnum):
    """What a command says to the shell."""

    DONE = 0
    INCOMPLETE = 1
    """A planned cell failed."""
    BAD_INPUT = 2
    """Bad usage, or a spec or file that cannot be used."""
    GATE_FAILED = 3
    INVALID = 4
    """The set-up does not replay the user's client."""
    CONTRADICTION = 5
    """An attack beat a bound."""
    INTERRUPTED = 130


class LeakgaugeError(Exception):
    """Something the user can act on: ``where: what; remedy``."""

    exit_code: ClassVar[ExitCode] = ExitCode.BAD_INPUT

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.where, self.what, self.remedy = where, what, remedy
        super().__init__(what)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; {self.remedy}" if self.remedy else head


class ExpressionError(LeakgaugeError):
    """A malformed expression or an unknown name."""


class SeveralFaultsError(ExpressionError):
    """Several faults of one expression, all of them in ``problems``; the message names the first."""

    named: ClassVar[int] = 3

    def __init__(self, problems: Iterable[LeakgaugeError]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.what, where=first.where, remedy=first.remedy)

    def __str__(self) -> str:
        more = f"; and {len(self.problems) - self.named} more" if len(self.problems) > self.named else ""
        return "; and ".join(map(str, self.problems[: self.named])) + more


class DomainError(LeakgaugeError, ValueError):
    """A number outside a formula's domain."""


class SeveralDomainFaultsError(SeveralFaultsError, DomainError):
    """Several numbers outside their domains, all of them in ``problems``; the message names those of a whole part."""

    named: ClassVar[int] = 20


def refuse(faults: Sequence[LeakgaugeError]) -> None:
    """Raise all of these at once; nothing where there are none."""
    if len(faults) > 1:
        numbers = all(isinstance(fault, DomainError) for fault in faults)
        raise SeveralDomainFaultsError(faults) if numbers else SeveralFaultsError(faults)
    for fault in faults:
        raise fault


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


def need(package: str, what: str, *, where: str, extra: str) -> None:
    """Raise an error that names the extra to install if an optional package is missing: ``what`` needs it."""
    try:
        importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(
            f"{what} the package {package}", where=where, remedy=f"type: pip install 'leakgauge[{extra}]'"
        ) from None


class AssumptionWarning(UserWarning):
    """The attack assumed a likelihood because the protection has no density."""


class NotModelledWarning(AssumptionWarning):
    """The attack ignores what a part does to updates; if it finds nothing, that proves nothing."""


_COMPARED, _LISTED, _LONG = 2000, 80, 200
"""Names that are compared, names that are listed, letters of a name that is compared: files may hold any number."""


def nearest(name: str, names: Iterable[str], *, quoted: bool = False) -> str:
    """The remedy for an unknown name: the nearest valid one, else all of them (``quoted``: they contain commas)."""
    known = sorted(names)
    compared = known[:_COMPARED] if len(name) <= _LONG else ()  # the time to compare grows with both lengths
    close = get_close_matches(name, compared, n=1)
    listed = [repr(one) if quoted else one for one in known[:_LISTED]]
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(listed)}{more}"


def brief(text: str, most: int = 100) -> str:
    """A text from a file for a message: its beginning, if it is long."""
    return text if len(text) <= most else f"{text[:most]}…"


def printable(text: str) -> str:
    """Text without control characters, which could rewrite what a terminal shows; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    harmful = {ord(character): "\ufffd" for character in set(text) if not _harmless(character)}  # pages are long
    return text.translate(harmful) if harmful else text


def _harmless(character: str) -> bool:
    return character in "\n\t" or character.isprintable() or category(character) == "Zs"
