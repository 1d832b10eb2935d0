"""The claims: what is shown, and the bar it must pass."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.registry import Check

ROWS = Path(__file__).parent / "rows.toml"
TOPICS = {
    "foundations": "Densities, gradients and solvers",
    "attacks": "Attacks",
    "defenses": "Defenses, each against an adversary built for it",
    "bounds": "Bounds",
    "papers": "Tables and figures of papers",
    "audit": "Audits and what their words are worth",
    "files": "Programs, data and files",
    "training": "Training, utility and price",
    "federated": "Federated training, several steps, rounds and clients",
    "speed": "Speed",
}
"""The headings of the page, in its order."""


@dataclass(frozen=True)
class Row:
    """One claim, the bar that it sets in words, and the checks that measure it."""

    topic: str
    row: str
    what: str
    bar: str
    checks: tuple[str, ...]


def load_rows(path: Path = ROWS) -> list[Row]:
    """The rows of ``rows.toml``, in its order."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("row", [])
    return [Row(e["topic"], e["row"], e["what"], e["bar"], tuple(e["checks"])) for e in entries]


def problems(rows: Iterable[Row], checks: Mapping[str, Check]) -> list[str]:
    """Everything that keeps rows and checks from being a one-to-one account of each other."""
    rows = list(rows)
    by_id = {row.row: row for row in rows}
    wrong = [f"row {name!r} is there {n} times" for name, n in Counter(row.row for row in rows).items() if n > 1]
    wrong += [
        f"row {row.row!r} has the topic {row.topic!r}; the topics are {', '.join(TOPICS)}"
        for row in rows
        if row.topic not in TOPICS
    ]
    listed = Counter(name for row in rows for name in row.checks)
    wrong += [f"check {name!r} is listed {n} times" for name, n in listed.items() if n > 1]
    for row in rows:
        if not row.checks:
            wrong.append(f"row {row.row!r} lists no check")
        wrong += [
            f"row {row.row!r} lists the check {name!r}, which is not registered"
            for name in row.checks
            if name not in checks
        ]
    for check in checks.values():
        if check.row not in by_id:
            wrong.append(f"check {check.name!r} belongs to the row {check.row!r}, which rows.toml does not have")
        elif check.name not in by_id[check.row].checks:
            wrong.append(f"check {check.name!r} is not listed by its row {check.row!r}")
    return wrong
