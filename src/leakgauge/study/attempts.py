"""Trying something that may fail: its value, or what is wrong, so that all problems can be listed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from leakgauge.errors import LeakgaugeError, SeveralFaultsError
from leakgauge.study.sections import Problem
from leakgauge.study.spec import brief

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """What was built, or the faults. None without a fault: it was not tried, since it needs the user's code."""

    value: T | None = None
    faults: tuple[LeakgaugeError, ...] = ()


class Tried(Protocol):
    """An :class:`Attempt`, or the reading of an expression."""

    @property
    def faults(self) -> tuple[LeakgaugeError, ...]: ...


def attempt(work: Callable[[], T]) -> Attempt[T]:
    """Run ``work``; what it raises becomes a fault."""
    try:
        return Attempt(work())
    except SeveralFaultsError as several:
        return Attempt(faults=several.problems)
    except LeakgaugeError as fault:
        return Attempt(faults=(fault,))
    except (OSError, ValueError, MemoryError, RuntimeError) as fault:
        what = brief(f"cannot be used ({fault or type(fault).__name__})", 200)
        return Attempt(faults=(LeakgaugeError(what, remedy="check it"),))


def problems_of(tried: Tried, file: str, key: str) -> Iterator[Problem]:
    """The faults as problems of one key of a spec."""
    for fault in tried.faults:
        told = fault.where is None or fault.where in (key, key.rpartition(".")[2], "model")
        what = fault.what if told else f"{fault.where}: {fault.what}"
        yield Problem(file, key, brief(what, 300), fault.remedy or "see `leakgauge list`")
