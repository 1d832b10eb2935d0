"""Figures 2, 3, 5 and 6: Soteria, ATS and PRECODE over training, and what is read through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leakgauge.papers.bayes.over_training import RATES, RECORD, measure, unit
from leakgauge.papers.bayes.over_training import __doc__ as ABOUT
from leakgauge.papers.contract import Cell, Figure, Size, Table, at_least, difference
from leakgauge.papers.sources import BAYES

STEPS = (0, 10, 100)


def _over_training(
    defenses: tuple[str, ...], rates: tuple[str, ...], iterations: int = 120
) -> dict[str, dict[str, Any]]:
    attacks = {
        "Soteria": f"drop_layer(layer='linear1', steps={iterations})",
        "ATS": f"inverting_gradients(steps={iterations})",
    }
    cases = [(d, r, s) for d in defenses for r in rates for s in STEPS]
    return {
        k: v for d, r, s in cases for k, v in unit(f"{d}, {r} rate, step {s}", d, attacks[d], step=s, rate=r).items()
    }


def _early(defense: str, rate: str) -> Cell:
    names = f"{defense}, {rate} rate, step 0", f"{defense}, {rate} rate, step 100"
    return Cell(
        f"{defense}, {rate} rate: step 0 above step 100", at_least(0), "dB", difference(*names), claim=rate == "stated"
    )


def _cells(names: Sequence[str]) -> list[Cell]:
    """The scores of units of work; under ATS in the paper's convention, and against the record itself."""
    ats = [f"{name}{RECORD}" for name in names if name.startswith("ATS")]
    return [Cell(name, None, "dB") for name in (*names, *ats)]


def _small(iterations: int) -> dict[str, dict[str, Any]]:
    how: dict[str, Any] = {"records": 2, "model": "cnn_13700"}
    return {
        **unit("Soteria, generic", "Soteria", f"inverting_gradients(steps={iterations}, tv_weight=4e-4)", **how),
        **unit("Soteria, layer left out", "Soteria", f"drop_layer(layer='linear1', steps={iterations})", **how),
    }


ALL = _over_training(("Soteria", "ATS"), ("released", "stated"))
LESS = ("Fashion-MNIST and a small CNN instead of CIFAR-10 and ConvBig", "5 images", "120 iterations")


def _brief(defense: str, iterations: int) -> dict[str, dict[str, Any]]:
    work = _over_training((defense,), ("stated",), iterations)
    return {k: {**v, "records": 2, "model": "cnn_13700"} for k, v in work.items() if v["step"] != 10}


UNTRAINED = (
    "Networks attacked through Soteria were trained without it, since it is slow; it acts on the attacked update."
)
HARDLY_TRAINED = "at the released rate the network hardly trains in 100 steps, so that leakage does not fall"
GENERIC = "inverting_gradients(steps=300, tv_weight=4e-4)"
SECOND = "Soteria, second layer"
FIVE = {
    **unit("Soteria, generic", "Soteria", GENERIC, step=10),
    **unit("Soteria, layer left out", "Soteria", "drop_layer(layer='linear1', steps=300)", step=10),
    **unit(f"{SECOND}, left out", SECOND, "drop_layer(layer='linear2', steps=300)", step=10),
}
PRECODE = unit("PRECODE", "PRECODE", "analytic()", model="mlp(width=500, depth=5)", records=10)
FIVE_LESS = (*LESS[:2], "300 iterations")
GAP = difference("Soteria, layer left out", "Soteria, generic")
PAPER = {
    "Soteria": {"model": "convbig", "name": "cifar10", "records": 100},
    "ATS": {"model": "convnet64", "name": "cifar10", "records": 100},
}
"""The paper's networks and numbers of images."""
SOTERIA_HOW = "lr=0.02, tv_weight=2e-3"
LAYER_OUT = f"drop_layer(layer='linear1', {SOTERIA_HOW})"
THROUGH_ATS = "inverting_gradients(steps=2000, lr=0.02, tv_weight=5e-5)"
"""The paper's rates and weights, which are those of normalised pixels, for a standard deviation of 0.2."""


def _full(defense: str, rates: tuple[str, ...], steps: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    attack, how = LAYER_OUT if defense == "Soteria" else THROUGH_ATS, PAPER[defense]
    cases = [(f"{defense}, {rate} rate, step {step}", rate, step) for rate in rates for step in steps]
    return {k: v for cell, r, s in cases for k, v in unit(cell, defense, attack, step=s, rate=r, **how).items()}


FULL = _full("Soteria", tuple(RATES), STEPS) | _full("ATS", tuple(RATES), STEPS)
FULL_FIVE = {
    k: v
    for cell, defense, attack in (
        ("Soteria, generic", "Soteria", f"inverting_gradients(steps=4000, {SOTERIA_HOW})"),
        ("Soteria, layer left out", "Soteria", LAYER_OUT),
        (f"{SECOND}, left out", SECOND, f"drop_layer(layer='linear2', {SOTERIA_HOW})"),
    )
    for k, v in unit(cell, defense, attack, step=10, **PAPER["Soteria"]).items()
}
FULL_PRECODE = unit("PRECODE", "PRECODE", "analytic()", model="mlp(width=500, depth=5)", name="cifar10", records=100)
FULL_THREE = {name: how for name, how in FULL.items() if name.endswith("stated rate, step 10")}
FULL_LESS = ("one of three ATS policies", "no random crops or flips", "networks get pixels in [0, 1]")
TABLES = (
    Table(
        "bayes/figure-2",
        "Figure 2: attacks on ATS and Soteria over training, released and stated rate",
        BAYES,
        (*_cells(list(ALL)), *(_early(d, r) for d in ("Soteria", "ATS") for r in RATES)),
        {
            "smoke": Size(_brief("Soteria", 40), ("2 images", "Soteria alone", "40 iterations", "13,700 parameters")),
            "small": Size(ALL, LESS),
            "full": Size(FULL, ("steps 0, 10 and 100 instead of 1,000 steps and 10 epochs", *FULL_LESS)),
        },
        measure,
        f"{ABOUT or ''} {UNTRAINED}",
        dict.fromkeys((_early(d, "released").name for d in ("Soteria", "ATS")), HARDLY_TRAINED),
        (Figure("training step", "PSNR (dB)"),),
    ),
    Table(
        "bayes/figure-3",
        "Figure 3: pictures read through Soteria, ATS and PRECODE",
        BAYES,
        (
            Cell("PRECODE", at_least(150), "dB", claim=True),
            *_cells([f"{d}, stated rate, step 10" for d in ("Soteria", "ATS")]),
        ),
        {
            "smoke": Size(PRECODE, ("Fashion-MNIST, 10 images", "PRECODE alone")),
            "small": Size({**PRECODE, **{k: v for k, v in ALL.items() if k.endswith("stated rate, step 10")}}, LESS),
            "full": Size(FULL_PRECODE | FULL_THREE, FULL_LESS),
        },
        measure,
        f"The paper prints one number: PSNR above 150 dB for PRECODE. {UNTRAINED}",
        grid=True,
    ),
    Table(
        "bayes/figure-5",
        "Figure 5: Soteria attacked directly, and with its layer left out",
        BAYES,
        (
            Cell("Soteria, generic", None, "dB"),
            Cell("Soteria, layer left out", None, "dB"),
            Cell(f"{SECOND}, left out", None, "dB"),
            Cell("gain", at_least(1, ours=True), "dB", GAP, True),
        ),
        {
            "smoke": Size(_small(60), ("2 images", "60 iterations", "13,700 parameters")),
            "small": Size(FIVE, FIVE_LESS),
            "full": Size(FULL_FIVE, FULL_LESS[1:]),
        },
        measure,
        "Pictures in the paper, after ten training steps; here the gain in dB beside them. The second layer is the "
        f"next larger one of the linear layers. {UNTRAINED}",
        grid=True,
    ),
    Table(
        "bayes/figure-6",
        "Figure 6: ATS over training, pictures",
        BAYES,
        (*_cells([f"ATS, stated rate, step {s}" for s in STEPS]), _early("ATS", "stated")),
        {
            "smoke": Size(_brief("ATS", 60), ("2 images", "60 iterations", "13,700 parameters")),
            "small": Size({k: v for k, v in ALL.items() if k.startswith("ATS, stated")}, LESS),
            "full": Size({k: v for k, v in FULL.items() if k.startswith("ATS, stated")}, FULL_LESS),
        },
        measure,
        "Quality declines after 10 steps in the paper's pictures; after 50 nothing is read reliably.",
        grid=True,
    ),
)
