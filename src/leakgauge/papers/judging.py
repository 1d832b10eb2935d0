"""From samples to verdicts: our number beside the paper's, with our interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leakgauge.errors import DomainError
from leakgauge.intervals import clopper_pearson, mean_interval
from leakgauge.papers.contract import Cell, Samples, Scale, Size, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor


CONFIRMED: tuple[Verdict, ...] = ("reproduced", "holds when reduced")
NOT_SETTLED = "the mean meets the bar, part of its interval does not"


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
    stand_in: bool = False

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
        return bool(claims) and all(row.verdict in CONFIRMED for row in claims)

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)


def shown(value: float) -> str:
    """Five digits, or all before the point and two behind it."""
    return f"{value:,.2f}" if 1e4 <= abs(value) < 1e12 else f"{value:.5g}"


@dataclass(frozen=True)
class Estimate:
    """The mean of a cell's samples, and its 95 % interval (None for a single number)."""

    value: float
    low: float | None
    high: float | None
    samples: int


def judged(table: Table, size: Size | None, samples: Samples, *, claims_only: bool = False) -> tuple[Row, ...]:
    """Every cell of a table; with ``claims_only``, where other data stand in, printed numbers are not compared."""
    values = [(cell, _samples(table, cell, samples)) for cell in table.cells]
    reduced = size.reduced if size is not None else ()
    return tuple(
        _row(table, cell, _estimate(table, cell, some) if size is not None else None, reduced, claims_only)
        for cell, some in values
        if len(some) or not cell.stand_in
    )


def judged_again(table: Table, result: Mapping[str, Any]) -> tuple[Row, ...]:
    """The rows of a recorded result, by the bars, marks and reasons that the table has now.

    A row of which the table has no cell any more stays as it was recorded.
    """
    cells, reduced = {cell.name: cell for cell in table.cells}, tuple(result["reduced"])
    claims_only = result["scale"] == "smoke" and bool(reduced)
    rows = []
    for row in result["rows"]:
        if (cell := cells.get(row["name"])) is None:
            rows.append(Row(**row))
            continue
        estimate = None
        if row["value"] is not None:
            low, high = _cut(cell, row["low"], row["high"])
            estimate = Estimate(row["value"], low, high, row["samples"])
        rows.append(_row(table, cell, estimate, reduced, claims_only))
    return tuple(rows)


def unused(table: Table, samples: Samples) -> list[str]:
    """Names of samples that no cell shows or computes with: most likely a typo in one of the two."""
    read = _Read(samples)
    for cell in table.cells:
        _samples(table, cell, read)
    return [name for name in samples if name not in read.names]


class _Read(Mapping[str, Sequence[float]]):
    """Samples that note which of them were asked for."""

    def __init__(self, samples: Samples) -> None:
        self.samples, self.names = samples, set[str]()

    def __getitem__(self, name: str) -> Sequence[float]:
        self.names.add(name)
        return self.samples[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def _samples(table: Table, cell: Cell, samples: Samples) -> Sequence[float]:
    if cell.of is None:
        return samples.get(cell.name, ())
    try:
        return cell.of(samples)
    except KeyError:  # what it is computed from was not measured at this scale
        return ()
    except Exception as fault:
        raise DomainError(
            f"`of` failed ({type(fault).__name__}: {fault})",
            where=f"{table.name}, cell {cell.name!r}",
            remedy="mend that function; what was measured is stored, the same command judges it again",
        ) from fault


def _estimate(table: Table, cell: Cell, values: Sequence[float]) -> Estimate | None:
    if not len(values):
        return None
    least, largest = cell.within or (0.0, 1.0)
    if cell.share and all(value in (least, largest) for value in values):
        count = sum(value == largest for value in values)
        low, high = (least + (largest - least) * end for end in clopper_pearson(count, len(values)))
        return Estimate(least + (largest - least) * count / len(values), low, high, len(values))
    try:
        mean = mean_interval(values)
    except DomainError as fault:
        where = f"{table.name}, cell {cell.name!r}"
        raise DomainError(fault.what, where=where, remedy="leave such samples out of it") from None
    ends = _cut(cell, mean.low, mean.high) if len(values) > 1 else (None, None)
    return Estimate(mean.mean, *ends, len(values))


def _cut(cell: Cell, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """An interval without values that are not possible."""
    within = cell.within or ((0.0, 1.0) if cell.share else None)
    if within is None or low is None or high is None:
        return low, high
    return max(low, within[0]), min(high, within[1])


def _row(table: Table, cell: Cell, estimate: Estimate | None, reduced: tuple[str, ...], claims_only: bool) -> Row:
    paper = "" if cell.expected is None else str(cell.expected)
    if estimate is None or cell.missing or table.missing:
        missing = cell.missing or table.missing
        verdict: Verdict = "cannot be run" if missing else "not run"
        return Row(cell.name, paper, cell.unit, None, None, None, 0, verdict, missing, cell.claim, True, cell.stand_in)
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    verdict, why = _verdict(table, cell, estimate.value, ends, reduced)
    if claims_only and not cell.claim:
        verdict, why = "measured", ""
    met = [cell.expected is None or cell.expected.met_by(end) for end in ends]
    return Row(
        cell.name,
        paper,
        cell.unit,
        estimate.value,
        estimate.low,
        estimate.high,
        estimate.samples,
        verdict,
        why,
        cell.claim,
        verdict not in CONFIRMED or all(met),
        cell.stand_in,
    )


def _verdict(
    table: Table, cell: Cell, value: float, ends: Sequence[float], reduced: tuple[str, ...]
) -> tuple[Verdict, str]:
    if cell.expected is None:
        return "measured", ""
    if cell.expected.met_by(value):
        return ("holds when reduced", "; ".join(reduced)) if reduced else ("reproduced", "")
    reason = table.reasons.get(cell.name, table.reasons.get("", "no reason is known yet"))
    reached = "; the interval includes values that meet the bar" if cell.expected.reached_by(ends) else ""
    return "differs", f"{reason}{reached}"


def state(rows: Sequence[Row]) -> Verdict:
    """One word for a table: the worst that is said of its cells; those that cannot be run count where all are such."""
    words = {row.verdict for row in rows}
    order: tuple[Verdict, ...] = ("differs", "holds when reduced", "reproduced", "measured", "not run", "cannot be run")
    return next((word for word in order if word in words), "not run")


def summary(rows: Sequence[Row], scale: Scale | None = None) -> str:
    """The state in words, with how many cells are otherwise, and how many are confirmed by their mean alone.

    Where a ``smoke`` judged nothing but what stands in for the paper's data, the state is "smoke only".
    """
    counts, word = Counter(row.verdict for row in rows), state(rows)
    open_cells = Counter(row.verdict for row in rows if not row.settled)
    others = [
        f"{counts[w]} {w}" + (f", {open_cells[w]} of them not settled" if open_cells[w] else "")
        for w in counts
        if w != word
    ]
    compared = [row for row in rows if row.verdict in (*CONFIRMED, "differs")]
    alone = scale == "smoke" and bool(compared) and all(row.stand_in for row in compared)
    if not others and not open_cells and not alone:
        return word
    number = f"{counts[word]} of {len(rows)} cells{f' {word}, on stand-ins' if alone else ''}"
    unsettled = f", {open_cells[word]} of them not settled" if open_cells[word] else ""
    rest = f"; {', '.join(others)}" if others else ""
    return f"{'smoke only' if alone else word} ({number}{unsettled}{rest})"
