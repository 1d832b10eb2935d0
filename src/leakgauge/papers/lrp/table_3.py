"""Table 3 and Figure 3: six defenses against a generative attack, in five metrics and in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import fmean
from typing import Any

from leakgauge.papers.contract import Cell, Samples, Size, Table, at_least, difference, near
from leakgauge.papers.lrp.generative import ANY_SCALE, DEFENSES, GGL, METRICS, measure
from leakgauge.papers.lrp.generative import __doc__ as ABOUT
from leakgauge.papers.sources import LRP

PRINTED = {
    "MSE": ("0.2746 0.2335 0.3443 0.2117 0.2079 0.4627", 0.1),
    "PSNR": ("5.7325 6.4000 4.7408 5.7545 6.8540 4.1501", 1.5),
    "LPIPS (VGG)": ("0.6170 0.5808 0.6448 0.6068 0.5748 0.6966", 0.05),
    "LPIPS (AlexNet)": ("0.5215 0.4755 0.5703 0.4895 0.4538 0.6227", 0.05),
    "MSE of representations": ("0.0014 0.0014 0.0114 0.0017 0.0018 0.3181", 0.01),
}
"""Of images in [−1, 1] with peak 1 (see ``conventions``), with the tolerance of each."""
OURS, BRIEF = "VAE, ", "sample, "
ARMS = [*((d, GGL) for d in DEFENSES), ("LRP", ANY_SCALE), ("none", ANY_SCALE)]
NO_GAN = "ImageNet and BigGAN are not here; the rows of our generator stand beside"
FEW: dict[str, Any] = {"name": "fashion_mnist_sample", "model": "cnn_13700", "records": 2, "steps": 15}
FEW |= {"public": 1000, "epochs": 8, "perceptual": False}


def _work(prefix: str, arms: list[tuple[str, str]], **how: Any) -> dict[str, dict[str, Any]]:
    return {f"{prefix}{d}, {a}": {"defense": d, "attack": a, "prefix": prefix, **how} for d, a in arms}


def _name(prefix: str, metric: str, defense: str, attack: str = GGL) -> str:
    return f"{prefix}{metric}, {defense}" + ("" if attack == GGL else f", {attack}")


def _same(prefix: str) -> Cell:
    names = (_name(prefix, "PSNR", d, ANY_SCALE) for d in ("none", "LRP"))
    return Cell(f"{prefix}any scale: LRP costs", near(0, 0.1, ours=True), "dB", difference(*names), True, True)


def _cost(prefix: str, least: float) -> Cell:
    of = difference(_name(prefix, "MSE", "LRP"), _name(prefix, "MSE", "none"))
    return Cell(f"{prefix}GGL: MSE under LRP above none", at_least(least), "", of, True, True)


def _largest(prefix: str) -> Cell:
    """The paper's finding: LRP protects best. Beside it, blind to the scale, that it does not."""
    names = [_name(prefix, "MSE", d) for d in DEFENSES]

    def lead(samples: Samples) -> Sequence[float]:
        *others, perturbed = (fmean(samples[name]) for name in names)
        return [perturbed - max(others)]

    return Cell(f"{prefix}GGL: MSE under LRP above any other defense", at_least(0), "", lead, False, True)


DROWNED = (
    "clipping and noise hides more here: to an update that is clipped to 4 it adds noise more than ten times as long "
    "(see the norm of what is sent); the paper states no norms"
)
INSTEAD = "Fashion-MNIST and an autoencoder instead of ImageNet and BigGAN"
SMOKE = Size(
    _work(BRIEF, [("none", GGL), ("LRP", GGL), ("none", ANY_SCALE), ("LRP", ANY_SCALE)], **FEW),
    ("Fashion-MNIST, 2 images; autoencoder of 1,000", "15 generations", "no LPIPS"),
)
SMALL = Size(
    _work(OURS, ARMS),
    (INSTEAD, "8 images", "150 generations instead of 800"),
)
FULL = Size(_work(OURS, ARMS, records=50, steps=800, public=60_000, epochs=20), (INSTEAD,))
TABLES = (
    Table(
        "lrp/table-3",
        "Table 3: six defenses against a generative attack, five metrics",
        LRP,
        (
            *(
                Cell(f"{metric}, {defense}", near(float(value), tolerance), missing=NO_GAN)
                for metric, (row, tolerance) in PRINTED.items()
                for defense, value in zip(list(DEFENSES)[1:], row.split(), strict=True)
            ),
            *(
                Cell(_name(OURS, metric, d, a), stand_in=True, within=None if metric == "PSNR" else (0.0, inf))
                for metric in METRICS
                for d, a in ARMS
            ),
            _cost(OURS, 0.0),
            _largest(OURS),
            _same(OURS),
            _cost(BRIEF, 0.0),
            _same(BRIEF),
        ),
        {"smoke": SMOKE, "small": SMALL, "full": FULL},
        measure,
        (ABOUT or "") + "What the paper lacks is the last row: to a search that is blind to the scale, LRP costs "
        "nothing. That does not say that it reads much: its pictures are as far off as those of GGL without a defense.",
        {f"{OURS}GGL: MSE under LRP above any other defense": DROWNED},
    ),
    Table(
        "lrp/figure-3",
        "Figure 3: pictures of the generative attack under each defense",
        LRP,
        (
            *(Cell(_name(OURS, "PSNR", d, a), None, "dB", stand_in=True) for d, a in ARMS),
            Cell("ImageNet", missing=NO_GAN),
            _cost(OURS, 0.0),
            _same(OURS),
            _cost(BRIEF, 0.0),
            _same(BRIEF),
        ),
        {"smoke": SMOKE, "small": SMALL, "full": FULL},
        measure,
        "The paper's reconstructions under LRP look like arbitrary draws of the generator.",
        grid=True,
    ),
)
