"""Tables of the papers as measurements: a check calls :mod:`leakgauge.papers`, and nothing is measured twice.

Units of work are stored in ``papers-output``, where ``leakgauge papers run`` stores them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evidence.execution import unseen
from evidence.measurement import Number
from evidence.registry import Context
from leakgauge.papers.contract import Scale, Table
from leakgauge.papers.judging import Outcome
from leakgauge.papers.running import OUTPUT, run

ROOT = Path(__file__).resolve().parents[1]


def reproduced(
    tables: Sequence[Table], name: str, context: Context, *, scale: Scale = "small", only: Sequence[str] = ()
) -> Outcome:
    """The outcome of one table, of which a part may be stored already; a failing unit fails the check."""
    unseen()
    table = next(table for table in tables if table.name == name)
    folder = ROOT / OUTPUT / name.partition("/")[0]
    outcome = run(table, scale, folder, only=only, say=context.say)
    if outcome.faults:
        raise RuntimeError(f"{name}: {dict(outcome.faults)}")
    return outcome


def numbers_of(outcome: Outcome, names: Sequence[str] | None = None) -> dict[str, Number]:
    """The rows that were measured, with their intervals and without bars."""
    rows = [row for row in outcome.rows if row.value is not None and (names is None or row.name in names)]
    return {
        row.name: Number(
            row.value or 0.0, interval=None if row.low is None or row.high is None else (row.low, row.high)
        )
        for row in rows
    }


def beside(outcome: Outcome) -> list[dict[str, str]]:
    """The whole table: the paper's number, ours, the verdict."""
    return [
        {"cell": row.name, "paper": row.paper, "ours": row.ours, "verdict": row.verdict}
        for row in outcome.rows
        if row.value is not None
    ]
