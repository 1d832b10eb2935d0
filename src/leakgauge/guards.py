"""Formulas guard their domain: every check says which formula, which domain, which value."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import SupportsFloat, SupportsIndex

from leakgauge.errors import DomainError, SeveralDomainFaultsError, brief

Number = SupportsFloat | SupportsIndex

_faults: ContextVar[list[DomainError] | None] = ContextVar("faults", default=None)


@contextmanager
def together() -> Iterator[None]:
    """Checks inside name all their faults at once, at the end of the block; what they return must not be used."""
    faults: list[DomainError] = []
    token = _faults.set(faults)
    try:
        yield
    except DomainError as last:  # of a check that is no guard: the block ends there
        faults.append(last)
    finally:
        _faults.reset(token)
    if len(faults) > 1:
        raise SeveralDomainFaultsError(faults)
    for fault in faults:
        raise fault


def refuse(fault: DomainError) -> None:
    """Raise a fault, or leave it to the block that collects them: what every guard here does with one."""
    faults = _faults.get()
    if faults is None:
        raise fault
    faults.append(fault)


def positive(value: Number, name: str, formula: str) -> float:
    """``value`` as a float in (0, ∞), or a :class:`DomainError`."""
    return inside(value, name, formula, 0.0, math.inf)


def non_negative(value: Number, name: str, formula: str) -> float:
    """``value`` as a float in [0, ∞), or a :class:`DomainError`."""
    return inside(value, name, formula, 0.0, math.inf, closed_low=True)


def probability(value: Number, name: str, formula: str) -> float:
    """``value`` as a float in [0, 1], or a :class:`DomainError`."""
    return inside(value, name, formula, 0.0, 1.0, closed_low=True, closed_high=True)


def inside(
    value: Number,
    name: str,
    formula: str,
    low: float,
    high: float,
    *,
    closed_low: bool = False,
    closed_high: bool = False,
) -> float:
    """``value`` as a float of the interval, or a :class:`DomainError`. NaN, truth values and texts lie in none."""
    number = _number(value)
    above = number >= low if closed_low else number > low
    below = number <= high if closed_high else number < high
    if not (above and below):
        ends = ("[" if closed_low else "(", "]" if closed_high else ")")
        interval = f"{ends[0]}{_plain(low)}, {_plain(high)}{ends[1]}"
        remedy = f"give a number such as {name}={_example(name, low, high):g}"
        refuse(DomainError(f"{name} must lie in {interval}, got {brief(repr(value))}", where=formula, remedy=remedy))
    return number


def count(value: SupportsIndex, name: str, formula: str, *, least: int = 1) -> int:
    """``value`` as an integer ≥ ``least`` (a float is refused, even 3.0), or a :class:`DomainError`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        remedy = f"give a whole number such as {name}={max(least, 1)}"
        what = f"{name} must be an integer ≥ {least}, got {brief(repr(value))}"
        refuse(DomainError(what, where=formula, remedy=remedy))
    return least if number is None else number


def seed(value: SupportsIndex, formula: str) -> int:
    """``value`` as a seed, an integer in 0 .. 2⁶³ − 1, or a :class:`DomainError`."""
    number = count(value, "seed", formula, least=0)
    if number >= 2**63:
        refuse(DomainError(f"seed must be below 2⁶³, got {brief(repr(value))}", where=formula, remedy="say seed=0"))
    return number


def finite(value: Number, name: str, formula: str) -> float:
    """``value`` as a finite float, or a :class:`DomainError`."""
    return inside(value, name, formula, -math.inf, math.inf)


def flag(value: object, name: str, formula: str) -> None:
    """Refuse a ``value`` that is neither True nor False, with a :class:`DomainError`."""
    if not isinstance(value, bool):
        what = f"{name} must be True or False, got {brief(repr(value))}"
        refuse(DomainError(what, where=formula, remedy=f"say {name}=True"))


def numbers(
    value: object,
    name: str,
    formula: str,
    example: str,
    *,
    length: int | None = None,
    low: float = -math.inf,
    high: float = math.inf,
    closed_low: bool = False,
) -> bool:
    """Whether ``value`` is a tuple of (``length``) numbers in (low, high), or [low, high); refused if it is not."""
    each = [_number(one) for one in value] if isinstance(value, tuple) else [math.nan]
    right = all((low <= one if closed_low else low < one) and one < high for one in each)
    right = right and length in (None, len(each))
    if not right:
        interval = f"{'[' if closed_low else '('}{_plain(low)}, {_plain(high)})"
        what = f"{name} must be {'' if length is None else f'{length} '}numbers in {interval}, got {brief(repr(value))}"
        refuse(DomainError(what, where=formula, remedy=f"say {name}={example}"))
    return right


def choice(value: object, name: str, formula: str, allowed: Iterable[str]) -> None:
    """Refuse a ``value`` that is none of the texts ``allowed``, with a :class:`DomainError`."""
    known = list(allowed)
    if not isinstance(value, str) or value not in known:
        close = get_close_matches(str(value), known, n=1) or known
        remedy = f"say {name}={close[0]!r}"
        what = f"{name} must be one of {', '.join(known)}, got {brief(repr(value))}"
        refuse(DomainError(what, where=formula, remedy=remedy))


def _number(value: object) -> float:
    """``value`` as a float; NaN for what is no single number, truth values and texts among it."""
    try:
        return math.nan if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):  # an integer of 400 digits, several numbers
        return math.nan


def _example(name: str, low: float, high: float) -> float:
    """A number well inside an interval; δ is a small probability by its nature."""
    if name == "delta":
        return 1e-5
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return max(low + 1, 1.0) if math.isfinite(low) else min(high - 1, 0.0)


def _plain(end: float) -> str:
    return ("∞" if end > 0 else "−∞") if math.isinf(end) else f"{end:g}"
