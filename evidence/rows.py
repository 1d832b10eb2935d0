"""The claims: what is shown, and the bar it must pass."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.registry import Check

ROWS = Path(__file__).parent / "rows.toml"


@dataclass(frozen=True)
class Row:
    """One row of an issue's "It must show" table, and the checks that measure it."""

    issue: int
    row: str
    what: str
    bar: str
    checks: tuple[str, ...]


def load_rows(path: Path = ROWS) -> list[Row]:
    """The rows of ``rows.toml``, in its order."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("row", [])
    return [Row(e["issue"], e["row"], e["what"], e["bar"], tuple(e["checks"])) for e in entries]


def problems(rows: Iterable[Row], checks: Mapping[str, Check]) -> list[str]:
    """Everything that keeps rows and checks from being a one-to-one account of each other."""
    rows = list(rows)
    by_id = {row.row: row for row in rows}
    found = [f"row {name!r} is there {n} times" for name, n in Counter(row.row for row in rows).items() if n > 1]
    listed = Counter(name for row in rows for name in row.checks)
    found += [f"check {name!r} is listed {n} times" for name, n in listed.items() if n > 1]
    for row in rows:
        if not row.checks:
            found.append(f"row {row.row!r} (issue {row.issue}) lists no check")
        found += [
            f"row {row.row!r} (issue {row.issue}) lists the check {name!r}, which is not registered"
            for name in row.checks
            if name not in checks
        ]
    for check in checks.values():
        if check.row not in by_id:
            found.append(f"check {check.name!r} belongs to the row {check.row!r}, which rows.toml does not have")
        elif check.name not in by_id[check.row].checks:
            found.append(f"check {check.name!r} is not listed by its row {check.row!r}")
    return found
