"""Figure 1, Tables 2 and 5: LPIPS under thirteen defenses, with and without the private batch-norm statistics.

Table 5 repeats the row of the strongest attack at B = 16 with other numbers than Table 2 prints; both are here. At
B = 32 the two rows are the same, and stand in Table 2. The printed numbers are those of a ResNet-18; where a small
network stands in, only orderings are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from statistics import stdev
from typing import Any

from leakgauge.papers.contract import Cell, Samples, Size, Table, at_least, difference, mean_difference, near
from leakgauge.papers.gradattack.attacking import DEFENSES, SAMPLE, Knowledge, measure
from leakgauge.papers.gradattack.network import FULL, FULL_LESS
from leakgauge.papers.sources import GRADATTACK

Printed = dict[tuple[str, int], tuple[str, str, str]]
STRONGEST, WITHOUT = "strongest", "without statistics"
TABLE_2: Printed = {
    (STRONGEST, 1): (
        "0.19 0.19 0.22 0.35 0.42 0.52 0.52 0.34 0.46 0.58 0.61 0.41 0.60",
        "0.02 0.02 0.05 0.14 0.22 0.32 0.36 0.12 0.25 0.41 0.42 0.21 0.43",
        "0.16 0.17 0.16 0.13 0.11 0.08 0.06 0.08 0.07 0.06 0.09 0.07 0.09",
    ),
    (STRONGEST, 16): (
        "0.45 0.46 0.47 0.51 0.55 0.58 0.61 0.34 0.31 0.62 0.63 0.46 0.68",
        "0.18 0.19 0.19 0.31 0.43 0.47 0.51 0.11 0.13 0.41 0.44 0.22 0.54",
        "0.12 0.12 0.11 0.07 0.05 0.04 0.03 0.09 0.09 0.08 0.08 0.10 0.07",
    ),
    (STRONGEST, 32): (
        "0.45 0.46 0.48 0.52 0.54 0.58 0.63 0.50 0.49 0.69 0.69 0.62 0.73",
        "0.18 0.18 0.22 0.31 0.43 0.48 0.54 0.31 0.28 0.56 0.56 0.37 0.65",
        "0.11 0.11 0.09 0.07 0.05 0.04 0.04 0.10 0.10 0.06 0.07 0.10 0.05",
    ),
}
TABLE_5: Printed = {
    (WITHOUT, 16): (
        "0.49 0.51 0.48 0.51 0.52 0.56 0.60 0.71 0.71 0.75 0.75 0.74 0.74",
        "0.30 0.33 0.31 0.33 0.34 0.39 0.44 0.48 0.53 0.65 0.63 0.61 0.63",
        "0.08 0.09 0.08 0.08 0.07 0.07 0.05 0.08 0.07 0.04 0.05 0.08 0.05",
    ),
    (WITHOUT, 32): (
        "0.48 0.50 0.53 0.53 0.55 0.60 0.63 0.73 0.72 0.76 0.76 0.76 0.77",
        "0.29 0.32 0.32 0.31 0.40 0.41 0.55 0.63 0.60 0.68 0.63 0.66 0.65",
        "0.08 0.07 0.07 0.08 0.08 0.06 0.04 0.06 0.06 0.04 0.05 0.06 0.05",
    ),
    (STRONGEST, 16): (
        "0.41 0.41 0.42 0.46 0.48 0.50 0.55 0.50 0.49 0.69 0.69 0.62 0.73",
        "0.21 0.22 0.27 0.29 0.30 0.29 0.48 0.31 0.28 0.56 0.56 0.37 0.65",
        "0.09 0.08 0.07 0.06 0.06 0.06 0.04 0.10 0.10 0.06 0.07 0.10 0.05",
    ),
}
"""Average, best and spread of LPIPS over 50 CIFAR-10 images, by attack and batch size, in the order of ``DEFENSES``."""
ATTACKS: dict[str, Knowledge] = {STRONGEST: "exact", WITHOUT: "infer"}
STATISTICS: dict[str, tuple[float, Callable[[Sequence[float]], float]]] = {"best": (0.1, min), "spread": (0.05, stdev)}
"""The tolerance of each, and what it is of the scores of all images."""


def _of(name: str, how: Callable[[Sequence[float]], float]) -> Callable[[Samples], Sequence[float]]:
    return lambda samples: [how(samples[name])]


def _printed(rows: Printed) -> list[Cell]:
    cells = []
    for (attack, batch), columns in rows.items():
        for defense, *values in zip(DEFENSES, *(column.split() for column in columns), strict=True):
            name = f"{attack}, B = {batch}, {defense}: LPIPS"
            average, *others = map(float, values)
            cells.append(Cell(name, near(average, 0.05), within=(0.0, inf)))
            for (word, (tolerance, how)), value in zip(STATISTICS.items(), others, strict=True):
                cells.append(Cell(f"{name}, {word}", near(value, tolerance), of=_of(name, how)))
    return cells


def unit(prefix: str, attack: str, batch: int, defense: str, **how: Any) -> dict[str, dict[str, Any]]:
    """One unit of work, named after what it measures."""
    cell = f"{prefix}{attack}, B = {batch}, {defense}"
    return {cell: {"cell": cell, "defense": defense, "knowledge": ATTACKS.get(attack, attack), "batch": batch, **how}}


def _all(rows: Printed) -> Size:
    """The paper's own sizes, 48 to 50 images."""
    cases = [(attack, batch, defense) for attack, batch in rows for defense in DEFENSES]
    units = [unit("", a, b, d, batches=max(1, 50 // b), **FULL) for a, b, d in cases]
    return Size({k: v for one in units for k, v in one.items()}, FULL_LESS)


OTHERWISE = "the paper feeds LPIPS normalised pixels and takes the nearest target of each (see `conventions`)"
NET, BRIEF = "ConvNet, ", "Fashion-MNIST, "
FEW: dict[str, Any] = {"name": SAMPLE, "batch": 1, "batches": 2, "steps": 30, "training": 8, "perceptual": False}
COLUMNS = ("none", "prune 0.9", "prune 0.99", "prune 0.999", "MixUp 4", "InstaHide 4")
LESS = (
    "three convolutions with batch norm after 60 training steps instead of a trained ResNet-18",
    "300 iterations",
    "32 images",
)
FEWER = (*LESS, "2 rounds of mixed records instead of 20", f"{len(COLUMNS)} of {len(DEFENSES)} defenses")
FEWER_2 = (*FEWER, "batches of 1 (8 images) and 16, none of 32")
FEWER_5 = (*FEWER, "batches of 16, none of 32")
SMOKE = ("Fashion-MNIST, 2 images, SSIM instead of LPIPS", "three convolutions after 8 steps", "30 iterations")


def _small(attack: str, batch: int) -> dict[str, dict[str, Any]]:
    return {k: v for d in COLUMNS for k, v in unit(NET, attack, batch, d, batches=8 if batch == 1 else 2).items()}


def _smoke(*cases: tuple[str, str]) -> dict[str, dict[str, Any]]:
    return {k: v | FEW for attack, defense in cases for k, v in unit(BRIEF, attack, 1, defense).items()}


def _gap(title: str, above: str, below: str, least: float = 0.0, prefix: str = NET) -> Cell:
    """A gap of LPIPS, the larger is the worse picture; of means, since batches may differ in number."""
    of = mean_difference(f"{prefix}{above}: LPIPS", f"{prefix}{below}: LPIPS")
    return Cell(title, at_least(least, ours=least > 0), "", of, True)


def _brief_gap(title: str, above: str, below: str, least: float) -> Cell:
    """A gap of SSIM at the smallest scale, the larger is the better picture."""
    of = difference(f"{BRIEF}{above}: SSIM", f"{BRIEF}{below}: SSIM")
    return Cell(f"{BRIEF}{title}", at_least(least, ours=True), "", of, True, True)


def _measured(units: dict[str, Any], metric: str) -> list[Cell]:
    within = (-1.0, 1.0) if metric == "SSIM" else (0.0, inf)
    return [Cell(f"{name}: {metric}", stand_in=True, within=within) for name in units]


def _others(units: dict[str, Any]) -> list[Cell]:
    """Best and spread of the LPIPS of a stand-in, beside its average."""
    cases = [(f"{name}: LPIPS", word, how) for name in units for word, (_, how) in STATISTICS.items()]
    return [Cell(f"{name}, {word}", of=_of(name, how), stand_in=True) for name, word, how in cases]


ARMS = (STRONGEST, "exact, in place", WITHOUT, "proxy")
MODES = {k: v for arm in ARMS for k, v in unit(NET, arm, 16, "none", batches=2).items()}
WHOLE = {k: v for arm in ARMS for k, v in unit("", arm, 16, "none", batches=1, **FULL).items()}
FIRST = _smoke((STRONGEST, "none"), (WITHOUT, "none"), ("proxy", "none"))
SECOND = _smoke((STRONGEST, "none"), (STRONGEST, "prune 0.999"))
FIFTH = _smoke((WITHOUT, "none"), (WITHOUT, "prune 0.999"))
SMALL_2 = _small(STRONGEST, 1) | _small(STRONGEST, 16)
SMALL_5 = _small(WITHOUT, 16) | unit(NET, STRONGEST, 16, "none", batches=2)
TABLES = (
    Table(
        "gradattack/figure-1",
        "Figure 1: what knowledge of batch-norm statistics is worth",
        GRADATTACK,
        (
            *_measured(MODES, "LPIPS"),
            *_measured(WHOLE, "LPIPS"),
            *_measured(FIRST, "SSIM"),
            *(
                _gap(f"{prefix}{title}", f"{above}, B = 16, none", f"{below}, B = 16, none", prefix=prefix)
                for prefix in ("", NET)
                for title, above, below in (
                    ("infer above exact", WITHOUT, STRONGEST),
                    ("proxy above infer", "proxy", WITHOUT),
                )
            ),
            _brief_gap("exact above proxy", f"{STRONGEST}, B = 1, none", "proxy, B = 1, none", 0.05),
            _brief_gap("infer above proxy", f"{WITHOUT}, B = 1, none", "proxy, B = 1, none", 0.05),
            Cell("one ImageNet image", missing="ImageNet is not among the data sets"),
        ),
        {"smoke": Size(FIRST, SMOKE), "small": Size(MODES, LESS), "full": Size(WHOLE, FULL_LESS)},
        measure,
        "Pictures of 16 CIFAR-10 images in the paper, without numbers. LPIPS, the larger is the worse picture. The "
        "strongest attack has the exact statistics as a target; without them the running ones are a target (infer), "
        "or take their place (proxy).",
        grid=True,
    ),
    Table(
        "gradattack/table-2",
        "Table 2: defenses, batch sizes, LPIPS by the strongest attack",
        GRADATTACK,
        (
            *_printed(TABLE_2),
            *_measured(SMALL_2, "LPIPS"),
            *_others(SMALL_2),
            *_measured(SECOND, "SSIM"),
            _gap("pruning 0.999 above none, B = 1", "strongest, B = 1, prune 0.999", "strongest, B = 1, none", 0.1),
            _gap("B = 16 above B = 1", "strongest, B = 16, none", "strongest, B = 1, none"),
            _gap("InstaHide above MixUp, B = 16", "strongest, B = 16, InstaHide 4", "strongest, B = 16, MixUp 4"),
            _brief_gap("none above pruning 0.999", "strongest, B = 1, none", "strongest, B = 1, prune 0.999", 0.1),
        ),
        {"smoke": Size(SECOND, SMOKE), "small": Size(SMALL_2, FEWER_2), "full": _all(TABLE_2)},
        measure,
        __doc__ or "",
        dict.fromkeys((cell.name for cell in _printed(TABLE_2)), OTHERWISE),
        grid=True,
    ),
    Table(
        "gradattack/table-5",
        "Table 5: the same without knowledge of batch-norm statistics",
        GRADATTACK,
        (
            *_printed(TABLE_5),
            *_measured(SMALL_5, "LPIPS"),
            *_others(SMALL_5),
            *_measured(FIFTH, "SSIM"),
            _gap("without statistics above strongest", f"{WITHOUT}, B = 16, none", "strongest, B = 16, none"),
            _gap("pruning 0.999 above none", f"{WITHOUT}, B = 16, prune 0.999", f"{WITHOUT}, B = 16, none", 0.02),
            _brief_gap("none above pruning 0.999", f"{WITHOUT}, B = 1, none", f"{WITHOUT}, B = 1, prune 0.999", 0.1),
        ),
        {"smoke": Size(FIFTH, SMOKE), "small": Size(SMALL_5, FEWER_5), "full": _all(TABLE_5)},
        measure,
        __doc__ or "",
        dict.fromkeys((cell.name for cell in _printed(TABLE_5)), OTHERWISE),
        grid=True,
    ),
)
