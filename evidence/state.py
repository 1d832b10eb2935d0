"""What a stored result is worth now: each number against its bar, and whether the code has changed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from evidence.measurement import Bar, Number, verdict
from evidence.registry import Check
from evidence.rows import Row
from evidence.sources import Fingerprint, Sources
from evidence.store import Result, Store

Word = Literal["pass", "miss", "no bar", "crashed", "measure anew", "not measured"]
SECONDS = {"fast": 20.0, "minutes": 300.0, "long": 1500.0}
"""What a check of each cost takes, where it was never measured."""


@dataclass(frozen=True)
class State:
    """The stored result of a check, its verdict in a word, and whether it is older than the code.

    The word is computed here from the stored numbers and bars: a file cannot claim to pass. ``measure anew`` stands for
    a result that holds no number with its bar, or whose claim was changed since.
    """

    word: Word
    old: bool = False
    result: Result | None = None
    numbers: Mapping[str, Number] | None = None

    @property
    def current(self) -> bool:
        """Whether the numbers are those of the code and of the claim as they are."""
        return self.numbers is not None and not self.old


def state(row: Row, result: Result | None, *fingerprints: str) -> State:
    """The state of a result, given the fingerprints of the code as it is: of all that the check imports, and of what it
    ran. One that is as stored is enough (none: it cannot be known)."""
    if result is None:
        return State("not measured")
    old = not any(digest in (result.get("fingerprint"), result.get("executed")) for digest in fingerprints)
    if result.get("error"):
        return State("crashed", old, result)
    if not result.get("numbers") or result.get("bar") != row.bar:
        return State("measure anew", old, result)
    numbers = {name: read_number(entry) for name, entry in result["numbers"].items()}
    word: Word = {True: "pass", False: "miss", None: "no bar"}[verdict(numbers)]  # type: ignore[assignment]
    return State(word, old, result, numbers)


def read_number(entry: Mapping[str, object]) -> Number:
    """A number as the store has it: infinities and NaN by name, other texts as they are."""
    value, bar, interval = entry["value"], entry.get("bar"), entry.get("interval")
    return Number(
        float(value) if value in ("inf", "-inf", "nan") else value,  # type: ignore[arg-type]
        Bar(**bar) if isinstance(bar, dict) else None,
        (float(interval[0]), float(interval[1])) if isinstance(interval, list) else None,
    )


def fingerprint(check: Check, sources: Sources) -> Fingerprint:
    """The fingerprint of the code that a check depends on."""
    return sources.fingerprint(check.function.__module__, check.function.__name__, check.uses)


def executed(check: Check, sources: Sources, result: Result | None) -> str | None:
    """The fingerprint of the code that a check ran, as it is now; None where that was not seen."""
    ran = result and result.get("ran")
    if not ran:
        return None
    names = {module: str(functions).split() for module, functions in ran.items()}
    return sources.executed(check.function.__module__, check.function.__name__, names, check.uses).digest


def now(row: Row, check: Check, result: Result | None, sources: Sources) -> State:
    """The state of a result beside the code as it is."""
    digests = (fingerprint(check, sources).digest, executed(check, sources, result))
    return state(row, result, *(digest for digest in digests if digest))


def states(
    rows: Iterable[Row], checks: Mapping[str, Check], store: Store, sources: Sources | None = None
) -> dict[str, State]:
    """The state of every check that a row lists; the result of one that cannot be loaded counts as old."""
    sources = sources or Sources(store.root)
    return {
        name: now(row, checks[name], store.read(name), sources) if name in checks else state(row, store.read(name))
        for row in rows
        for name in row.checks
    }


def seconds(check: Check, result: Result | None) -> float:
    """How long a check takes: as long as the last time."""
    return float(result["seconds"]) if result and "seconds" in result else SECONDS[check.cost]
