"""Figure 1, Tables 2 and 5: printed numbers that need batch-norm modes, LPIPS and a trained ResNet-18.

What is missing is said; the numbers are here, so that a ``measure`` is all that is to add.
"""

from __future__ import annotations

from leakgauge.papers.contract import Cell, Table, near
from leakgauge.papers.sources import GRADATTACK

PRUNED = tuple(f"prune {p}" for p in (0.5, 0.7, 0.9, 0.95, 0.99, 0.999))
MIXED = ("MixUp 4", "MixUp 6", "InstaHide 4", "InstaHide 6", "prune 0.9 + MixUp 4", "prune 0.9 + InstaHide 4")
DEFENSES = ("none", *PRUNED, *MIXED)
ACCURACY = "93.37 93.19 93.01 90.57 89.92 88.61 83.58 92.31 90.41 90.04 88.20 91.37 86.10"
LPIPS = {
    "strongest, B = 16": "0.41 0.41 0.42 0.46 0.48 0.50 0.55 0.50 0.49 0.69 0.69 0.62 0.73",
    "strongest, B = 32": "0.45 0.46 0.48 0.52 0.54 0.58 0.63 0.50 0.49 0.69 0.69 0.62 0.73",
    "without statistics, B = 16": "0.49 0.51 0.48 0.51 0.52 0.56 0.60 0.71 0.71 0.75 0.75 0.74 0.74",
    "without statistics, B = 32": "0.48 0.50 0.53 0.53 0.55 0.60 0.63 0.73 0.72 0.76 0.76 0.76 0.77",
}
"""Average LPIPS over 50 CIFAR-10 images, as printed; of the strongest attack at B = 1 the text has no such row here."""


def _cells(kind: str) -> tuple[Cell, ...]:
    rows = {name: row for name, row in LPIPS.items() if name.startswith(kind)}
    pairs = [(name, d, v) for name, row in rows.items() for d, v in zip(DEFENSES, row.split(), strict=True)]
    return tuple(Cell(f"{name}, {d}: LPIPS", near(float(v), 0.05)) for name, d, v in pairs)


TABLES = (
    Table(
        "gradattack/figure-1",
        "Figure 1: what knowledge of batch-norm statistics is worth",
        GRADATTACK,
        (Cell("exact above inferred statistics"), Cell("inferred above proxy statistics")),
        waits="the batch-norm modes exact, inferred and proxy",
        about="Pictures of 16 CIFAR-10 images; the paper prints no number here.",
    ),
    Table(
        "gradattack/table-2",
        "Table 2: defenses, batch sizes, LPIPS, accuracy and time",
        GRADATTACK,
        (
            *(Cell(f"accuracy, {d}", near(float(a), 1), "%") for d, a in zip(DEFENSES, ACCURACY.split(), strict=True)),
            *_cells("strongest"),
        ),
        waits="LPIPS, batch-norm statistics that are granted, and a ResNet-18 trained on CIFAR-10 (hours of a GPU)",
    ),
    Table(
        "gradattack/table-5",
        "Table 5: the same without knowledge of batch-norm statistics",
        GRADATTACK,
        _cells("without"),
        waits="LPIPS, batch-norm statistics that are hidden, and a ResNet-18 trained on CIFAR-10 (hours of a GPU)",
    ),
)
