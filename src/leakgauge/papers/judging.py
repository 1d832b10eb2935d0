"""From samples to verdicts: our number beside the paper's, with our interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from leakgauge.intervals import mean_interval
from leakgauge.papers.contract import Cell, Samples, Scale, Size, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One cell, judged: the mean of its samples, its 95 % interval (None for a single number), and the verdict."""

    name: str
    paper: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    samples: int
    verdict: Verdict
    why: str = ""
    claim: bool = False
    settled: bool = True
    """Whether the whole interval meets what is expected, where the mean does."""

    @property
    def ours(self) -> str:
        if self.value is None:
            return ""
        interval = "" if self.low is None or self.high is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{shown(self.value)}{interval}{' ' + self.unit if self.unit else ''}"


@dataclass(frozen=True)
class Outcome:
    """A table at one scale: its rows, what its units of work left beside them, and the faults of those that failed.

    ``units`` has the id of every unit of work that was done, by name.
    """

    table: Table
    scale: Scale
    rows: tuple[Row, ...]
    samples: Samples
    notes: Mapping[str, str]
    curves: Mapping[str, list[tuple[float, float]]]
    seconds: float
    faults: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, Tensor] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether every claim that was measured holds, and at least one was."""
        claims = [row for row in self.rows if row.claim and row.value is not None]
        return bool(claims) and all(row.verdict in ("reproduced", "holds when reduced") for row in claims)

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)


def shown(value: float) -> str:
    """Five digits, or all before the point and two behind it."""
    return f"{value:,.2f}" if 1e4 <= abs(value) < 1e12 else f"{value:.5g}"


def judged(table: Table, size: Size | None, samples: Samples, *, claims_only: bool = False) -> tuple[Row, ...]:
    """Every cell of a table; with ``claims_only``, where other data stand in, printed numbers are not compared."""
    values = [(cell, _samples(cell, samples)) for cell in table.cells]
    return tuple(_row(table, size, cell, some, claims_only) for cell, some in values if len(some) or not cell.stand_in)


def _samples(cell: Cell, samples: Samples) -> Sequence[float]:
    if cell.of is None:
        return samples.get(cell.name, ())
    try:
        return cell.of(samples)
    except KeyError:  # what it is computed from was not measured at this scale
        return ()


def _row(table: Table, size: Size | None, cell: Cell, values: Sequence[float], claims_only: bool) -> Row:
    paper = "" if cell.expected is None else str(cell.expected)
    if missing := cell.missing or table.missing:
        return Row(cell.name, paper, cell.unit, None, None, None, 0, "cannot be run", missing, cell.claim)
    if size is None or not len(values):
        return Row(cell.name, paper, cell.unit, None, None, None, 0, "not run", table.waits, cell.claim)
    mean = mean_interval(values)
    low, high = (mean.low, mean.high) if len(values) > 1 and isfinite(mean.low) and isfinite(mean.high) else (None,) * 2
    verdict, why = _verdict(table, size, cell, mean.mean)
    if claims_only and not cell.claim:
        verdict, why = "measured", ""
    ends = [end for end in (low, high) if end is not None]
    met = [cell.expected is None or cell.expected.met_by(end) for end in ends]
    if verdict == "differs" and cell.expected is not None and cell.expected.reached_by(ends):
        why += "; its interval reaches what is expected"
    settled = verdict not in ("reproduced", "holds when reduced") or all(met)
    return Row(cell.name, paper, cell.unit, mean.mean, low, high, len(values), verdict, why, cell.claim, settled)


def _verdict(table: Table, size: Size, cell: Cell, value: float) -> tuple[Verdict, str]:
    if cell.expected is None:
        return "measured", ""
    if not cell.expected.met_by(value):
        return "differs", table.reasons.get(cell.name, table.reasons.get("", "no reason is known yet"))
    return ("holds when reduced", "; ".join(size.reduced)) if size.reduced else ("reproduced", "")


def state(rows: Sequence[Row]) -> Verdict:
    """One word for a table: the worst that is said of its cells; those that cannot be run count where all are such."""
    words = {row.verdict for row in rows}
    order: tuple[Verdict, ...] = ("differs", "holds when reduced", "reproduced", "measured", "not run", "cannot be run")
    return next((word for word in order if word in words), "not run")


def summary(rows: Sequence[Row]) -> str:
    """The state in words, with how many cells are otherwise."""
    counts, word = Counter(row.verdict for row in rows), state(rows)
    others = [f"{counts[w]} {w}" for w in counts if w != word]
    if not others:
        return word
    return f"{word} ({counts[word]} of {len(rows)} cells; {', '.join(others)})"
