"""Figure 2: (a) labels repeat in batches, which defeats rules of one label per row; (b) what labels are worth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from leakgauge import data
from leakgauge.papers.contract import Cell, Measured, Size, Table, at_least, difference, near
from leakgauge.papers.gradattack import attacking
from leakgauge.papers.gradattack.network import FULL, FULL_LESS
from leakgauge.papers.sources import GRADATTACK

SIZES, CLASSES, SAMPLE = (2, 4, 8, 16, 32), 10, "fashion_mnist_sample"


def repeated(batch: int) -> float:
    """P(some label occurs twice) in a batch of equally likely classes."""
    return 1.0 if batch > CLASSES else 1 - math.perm(CLASSES, batch) / CLASSES**batch


def measure(
    kind: str, name: str, batches: int, steps: int = 0, seed: int = 0, **how: Any
) -> Measured | dict[str, list[float]]:
    """``repeats``: whether random batches repeat a label. Else: a batch of 16, labels ``known`` or searched jointly."""
    if kind != "repeats":
        labels: Any = kind.removeprefix("labels ")
        return attacking.measure(kind, labels=labels, name=name, batches=batches, steps=steps, seed=seed, **how)
    dataset, rng = data.load(name), np.random.default_rng(seed)
    labels = np.asarray(dataset.labels("train"))
    return {
        f"B = {b}: batches with a repeated label": [
            float(len(np.unique(labels[rng.choice(len(labels), b, replace=False)])) < b) for _ in range(batches)
        ]
        for b in SIZES
    }


ARMS = ("labels known", "labels joint")
TABLES = (
    Table(
        "gradattack/figure-2",
        "Figure 2: repeated labels in a batch, and what labels are worth",
        GRADATTACK,
        (
            *(
                Cell(
                    f"B = {b}: batches with a repeated label",
                    near(repeated(b), 0.03, ours=True),
                    claim=True,
                    share=True,
                )
                for b in SIZES
            ),
            *(Cell(f"{arm}: {metric}") for arm in ARMS for metric in ("LPIPS", "SSIM")),
            Cell("joint above known: LPIPS", at_least(0), of=difference(*(f"{arm}: LPIPS" for arm in reversed(ARMS)))),
        ),
        {
            "smoke": Size({"repeats": {"kind": "repeats", "name": SAMPLE, "batches": 2000}}, ("Fashion-MNIST labels",)),
            "small": Size(
                {
                    "repeats": {"kind": "repeats", "name": "cifar10", "batches": 5000},
                    **{arm: {"kind": arm, "name": "cifar10", "batches": 2, "steps": 300} for arm in ARMS},
                },
                ("(b) with three convolutions and batch norm instead of a ResNet-18, 300 iterations",),
            ),
            "full": Size(
                {
                    "repeats": {"kind": "repeats", "name": "cifar10", "batches": 5000},
                    **{arm: {"kind": arm, "name": "cifar10", "batches": 1, **FULL} for arm in ARMS},
                },
                FULL_LESS,
            ),
        },
        measure,
        "The paper draws (a) from samples; the expected numbers are those of ten equally likely classes. (b) is two "
        "batches of 16 CIFAR-10 images, batch-norm statistics known; the paper shows one in pictures.",
        grid=True,
    ),
)
