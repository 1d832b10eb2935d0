"""Which columns of a table leak, under every defense."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Column
from leakgauge.report.formats import share


@dataclass(frozen=True)
class Columns:
    """One row per feature, one column per defense; what leaks most under any defense first."""

    defenses: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Column | None, ...]], ...]


def columns(result: Result) -> Columns | None:
    """The features of a table by how often they were right; None for records without features."""
    by = {name: {c.name: c for c in d.columns} for name, d in result.defenses.items() if d.columns}
    if not by:
        return None
    names = dict.fromkeys(feature for features in by.values() for feature in features)
    rows = [(feature, tuple(features.get(feature) for features in by.values())) for feature in names]
    rows.sort(key=lambda row: -max(column.right - column.null for column in row[1] if column))
    return Columns(tuple(by), tuple(rows))


def text(column: Column | None) -> str:
    """``83 % (6 %)``: right in the reconstructions, and in the nulls."""
    return "–" if column is None else f"{share(column.right)} ({share(column.null)})"
