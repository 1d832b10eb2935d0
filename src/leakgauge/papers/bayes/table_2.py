"""Table 2: PSNR of four attacks under four defenses, at initialisation and at step 500, on MNIST and CIFAR-10.

The released "Bayes optimal" attack on pruning knows the mask, which its baselines do not. Both are here: of the gap of
4 to 5 dB to L2 and L1 (MNIST, step 0), knowing the mask is worth about 1 dB. The paper tunes on ten images that it also
reports; ours are tuned on others, one cell in both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leakgauge.papers.bayes.tuned import DEFENSES, Attack, measure
from leakgauge.papers.contract import Cell, Scale, Size, Table, at_least, difference, near
from leakgauge.papers.sources import BAYES

ATTACKS: tuple[Attack, ...] = ("bayes", "l2", "l1", "cosine")
PRINTED = {
    ("mnist", 0): "19.63 19.95 19.39 19.70 19.48 18.86 19.99 18.64 18.40 14.44 13.95 16.72 18.27 14.01 13.86 15.21",
    ("mnist", 500): "16.06 16.18 15.86 15.39 15.95 15.47 16.31 15.14 16.42 13.15 13.24 14.47 16.52 13.60 13.54 14.57",
    ("cifar10", 0): "21.86 21.81 21.49 21.53 21.87 21.02 21.89 20.87 20.73 16.60 16.20 18.73 20.54 16.25 16.13 17.40",
    ("cifar10", 500): "17.94 18.64 18.00 18.34 18.41 18.37 19.11 18.02 18.67 15.61 15.27 16.74 18.51 15.32 15.24 15.51",
}
"""Row by row as printed: the defenses in the order of ``DEFENSES``, each by Bayes, L2, L1 and cosine."""
TOLERANCE = 1.5
RECIPE = "the paper's training recipe is not released; ours is in leakgauge.papers.bayes.tuned"
SMALLEST = (
    "the search ends at the smallest prior weight that it tries (see its choice), and might gain below it; the paper "
    "searches 480 settings"
)
NAMES = [f"{defense}, {by}" for defense in DEFENSES for by in ATTACKS]
PRUNED = [defense for defense in DEFENSES if defense.startswith("prune")]
ABOUT = (
    "Mean PSNR in dB in the paper's convention (de-normalised, range 1, not clipped), batch 1, label known, Adam with "
    "200 iterations. Bayes is granted the mask under pruning, as in the released code; without it the row says so. The "
    "remark has what the search chose on other images, and its score there. The cosine takes the smallest of its seven "
    "prior weights in every cell of step 0, MNIST: it might gain from a smaller one."
)


def _claims(printed: Mapping[str, float], step: int) -> tuple[Cell, ...]:
    """How far Bayes is ahead, and which attacks are equal; at step 500 the paper's own gaps are about 3 dB."""

    def gap(defense: str, by: str) -> Cell:
        names = f"{defense}, bayes", f"{defense}, {by}"
        paper = round(printed[names[0]] - printed[names[1]], 2)
        expected = near(paper, TOLERANCE) if step else at_least(3, ours=True)
        return Cell(f"{defense}: bayes above {by}", expected, "dB", difference(*names), claim=True)

    same = (("gaussian", "bayes", "l2"), ("laplace", "bayes", "l1"))
    equal = [
        Cell(f"{d}: {a} less {b}", near(0, 1, ours=True), "dB", difference(f"{d}, {a}", f"{d}, {b}"))
        for d, a, b in same
    ]
    return (*(gap(defense, by) for defense in PRUNED for by in ("l2", "l1")), *equal)


def _work(name: str, step: int, **how: Any) -> dict[str, dict[str, Any]]:
    common = {"name": name, "step": step, **how}
    work = {
        f"{d}, {by}": {
            "cell": f"{d}, {by}",
            "defense": d,
            "attack_by": by,
            "mask": by == "bayes" and d in PRUNED,
            **common,
        }
        for d in DEFENSES
        for by in ATTACKS
    }
    for d in PRUNED:
        work[f"{d}, bayes, mask hidden"] = {**work[f"{d}, bayes"], "mask": False, "cell": f"{d}, bayes, mask hidden"}
    own = "gaussian, l2, tuned on the reported"
    return {**work, own: {**work["gaussian, l2"], "on_reported": True, "cell": own}}


BRIEF: dict[str, Any] = {
    "name": "fashion_mnist_sample",
    "tuning": 0,
    "reported": 2,
    "steps": 80,
    "defense": "prune + gaussian",
}
BRIEF_TRAINING = 10


def _smoke(step: int) -> Size:
    """Bayes with the mask, and L2 without it, on two bundled images: the same for both data sets."""
    how = {**BRIEF, "step": BRIEF_TRAINING} if step else BRIEF
    work = {
        f"Fashion-MNIST, {by}": {"cell": f"Fashion-MNIST, {by}", "attack_by": by, "mask": by == "bayes", **how}
        for by in ("bayes", "l2")
    }
    trained = (f"{BRIEF_TRAINING} training steps",) if step else ()
    return Size(work, ("Fashion-MNIST, 2 images", "80 iterations", "nothing is tuned", *trained))


def _table(data_name: str, step: int) -> Table:
    printed = dict(zip(NAMES, map(float, PRINTED[data_name, step].split()), strict=True))
    cells = [Cell(name, near(value, TOLERANCE), "dB") for name, value in printed.items()]
    extra = [Cell(name, None, "dB") for name in _work(data_name, step) if name not in NAMES]
    smoke = _smoke(step)
    extra += [
        *(Cell(name, None, "dB", stand_in=True) for name in smoke.work),
        Cell("bayes above l2", at_least(3, ours=True), "dB", difference(*smoke.work), True, True),
    ]
    sizes: dict[Scale, Size] = {
        "smoke": smoke,
        "small": Size(_work(data_name, step), ("15 settings searched instead of 480", "20 images instead of 100")),
        "full": Size(_work(data_name, step, reported=100), ("15 settings searched instead of 480",)),
    }
    suffix = ("" if data_name == "mnist" else f"-{data_name}") + (f"-step-{step}" if step else "")
    reasons = {"": RECIPE} if step else {f"{defense}, cosine": SMALLEST for defense in DEFENSES}
    title = f"Table 2: four attacks under four defenses, {data_name}, step {step}"
    all_cells = (*cells, *extra, *_claims(printed, step))
    return Table(f"bayes/table-2{suffix}", title, BAYES, all_cells, sizes, measure, ABOUT, reasons)


TABLES = tuple(_table(data_name, step) for data_name, step in PRINTED)
