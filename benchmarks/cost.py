"""What a large audit costs, from the stored curves: ``python -m benchmarks.cost`` writes the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scale import STORED

TEMPLATE = Path(__file__).with_suffix(".md")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "cost.md"
Curves = Mapping[str, Mapping[str, Any]]
SEARCHED = 40
"""Steps × records of one point of the curve of parameters: ten steps on four records."""
PER_CELL = 10


@dataclass(frozen=True)
class System:
    """A system that somebody may want to audit."""

    name: str
    parameters: float
    records: int
    defenses: int
    steps: int
    processors: int


SYSTEMS = (
    System("a small CNN on one machine", 1e5, 100, 5, 1000, 2),
    System("ResNet-18 size", 1.1e7, 1000, 5, 4800, 64),
    System("ResNet-50 size, 100 nodes of 8", 2.6e7, 10_000, 5, 4800, 800),
)


def step(curves: Curves, parameters: float) -> float:
    """Seconds of one step on one record: the largest point of the curve, scaled linearly from there on."""
    points = sorted((point["x"], point["seconds"]) for point in curves["parameters"]["points"])
    below = [point for point in points if point[0] <= parameters] or points[:1]
    x, seconds = below[-1]
    return float(seconds / SEARCHED * max(1.0, parameters / x))


def hours(curves: Curves, system: System) -> tuple[float, float]:
    """Processor hours of attacks, and of everything else."""
    attacks = 3 * (system.defenses + 1) * system.records
    cells = attacks / PER_CELL
    last = max(curves["cells"]["points"], key=lambda point: point["x"])
    return attacks * system.steps * step(curves, system.parameters) / 3600, cells * last["seconds"] / last["x"] / 3600


def curves_table(curves: Curves) -> str:
    lines = ["| over | from | to | seconds | memory at the end | exponent |", "|---|---|---|---|---|---|"]
    for curve in curves.values():
        first, last = curve["points"][0], curve["points"][-1]
        times = f"{first['seconds']:.2g} → {last['seconds']:.3g}"
        lines.append(
            f"| {curve['about']} | {first['x']:,} | {last['x']:,} | {times} | {last['megabytes']:.0f} MB "
            f"| {curve['exponent']:.2f} |"
        )
    return "\n".join(lines)


def large_table(curves: Curves) -> str:
    lines = [
        "| system | records | defenses | steps | processors | processor hours | besides attacks | days |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for system in SYSTEMS:
        attacks, rest = hours(curves, system)
        lines.append(
            f"| {system.name} | {system.records:,} | {system.defenses} | {system.steps:,} | {system.processors} "
            f"| {attacks:,.0f} | {rest:.2g} | {(attacks + rest) / system.processors / 24:.2g} |"
        )
    return "\n".join(lines)


def page(text: str, curves: Curves) -> str:
    """The page with its tables computed anew."""
    for name, table in (("curves", curves_table(curves)), ("large", large_table(curves))):
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{start}{table}\n{end}{after}"
    return text


def main() -> None:
    PAGE.write_text(page(TEMPLATE.read_text(encoding="utf-8"), json.loads(STORED.read_text())), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
