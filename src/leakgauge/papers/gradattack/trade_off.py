"""The plot beside Table 2: leakage against accuracy by defense; the paper's points, and ours where recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.papers.contract import Figure
from leakgauge.papers.gradattack.attacking import DEFENSES, MIXED, PRUNED
from leakgauge.papers.gradattack.table_2 import NET, STRONGEST, TABLE_2
from leakgauge.papers.gradattack.table_2_utility import ACCURACY

BATCH = 16
FAMILIES = {
    "pruning": ("none", *PRUNED),
    "MixUp": tuple(name for name in MIXED if name.startswith("MixUp")),
    "InstaHide": tuple(name for name in MIXED if name.startswith("InstaHide")),
    "mixing and pruning": tuple(name for name in MIXED if name.startswith("prune")),
}
FIGURE = Figure("test accuracy (%)", f"LPIPS of the strongest attack, B = {BATCH}: the higher, the less leaks")
Points = dict[str, list[tuple[float, float]]]


def printed() -> Points:
    """Accuracy and average LPIPS as Table 2 prints them."""
    accuracy, leak = ACCURACY.split(), TABLE_2[STRONGEST, BATCH][0].split()
    places = dict(zip(DEFENSES, ((float(x), float(y)) for x, y in zip(accuracy, leak, strict=True)), strict=True))
    return {f"paper, {family}": [places[name] for name in names] for family, names in FAMILIES.items()}


def ours(utility: Sequence[Mapping[str, Any]], attacked: Sequence[Mapping[str, Any]]) -> Points:
    """The same of the recorded rows of both halves of the table, for the defenses that both have."""
    x, y = ({row["name"]: row["value"] for row in rows if row["value"] is not None} for rows in (utility, attacked))
    points: Points = {}
    for family, names in FAMILIES.items():
        keys = [(f"{NET}accuracy, {name}", f"{NET}{STRONGEST}, B = {BATCH}, {name}: LPIPS") for name in names]
        if places := [(x[a], y[b]) for a, b in keys if a in x and b in y]:
            points[f"ours, small network, {family}"] = places
    return points
