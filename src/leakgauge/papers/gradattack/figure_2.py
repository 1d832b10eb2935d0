"""Figure 2: (a) labels repeat in batches, which defeats rules of one label per row; (b) what labels are worth."""

from __future__ import annotations

import math

import numpy as np

from leakgauge import data, models
from leakgauge.adversary import Adversary, adam, cosine
from leakgauge.metrics import psnr
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Size, Table, at_least, difference, near
from leakgauge.papers.sources import GRADATTACK
from leakgauge.priors import tv
from leakgauge.task import Task
from leakgauge.types import Threat

SIZES, CLASSES, SAMPLE = (2, 4, 8, 16, 32), 10, "fashion_mnist_sample"


def repeated(batch: int) -> float:
    """P(some label occurs twice) in a batch of equally likely classes."""
    return 1.0 if batch > CLASSES else 1 - math.perm(CLASSES, batch) / CLASSES**batch


def measure(
    kind: str, name: str, batches: int = 0, records: int = 0, steps: int = 0, seed: int = 0
) -> dict[str, list[float]]:
    """``repeats``: whether random batches repeat a label. ``worth``: PSNR with labels known, and searched jointly."""
    dataset, rng = data.load(name), np.random.default_rng(seed)
    if kind == "repeats":
        labels = np.asarray(dataset.labels("train"))
        return {
            f"B = {b}: batches with a repeated label": [
                float(len(np.unique(labels[rng.choice(len(labels), b, replace=False)])) < b) for _ in range(batches)
            ]
            for b in SIZES
        }
    task = Task(models.build("bayes_cnn", dataset.domain, seed=seed), dataset.domain)
    private, samples = dataset.sample(records, seed=seed, split="test"), {}
    for threat in ("known", "joint"):
        adversary = Adversary(likelihood=cosine(), prior=1e-4 * tv(), solver=adam(lr=0.1, steps=steps), labels="joint")
        observed = observe(task, private, threat=Threat(labels="known" if threat == "known" else "joint"), seed=seed)
        samples[f"labels {threat}"] = psnr(adversary(task, observed, seed=seed).inputs[:, 0], private.inputs).tolist()
    return samples


TABLES = (
    Table(
        "gradattack/figure-2",
        "Figure 2: repeated labels in a batch, and what labels are worth",
        GRADATTACK,
        (
            *(Cell(f"B = {b}: batches with a repeated label", near(repeated(b), 0.03), claim=True) for b in SIZES),
            Cell("labels known", None, "dB"),
            Cell("labels joint", None, "dB"),
            Cell("known above joint", at_least(0), "dB", difference("labels known", "labels joint")),
        ),
        {
            "smoke": Size({"repeats": {"kind": "repeats", "name": SAMPLE, "batches": 2000}}, ("Fashion-MNIST labels",)),
            "small": Size(
                {
                    "repeats": {"kind": "repeats", "name": "cifar10", "batches": 5000},
                    "worth": {"kind": "worth", "name": SAMPLE, "records": 8, "steps": 300},
                },
                ("(b) on single Fashion-MNIST images instead of a batch of 16 of CIFAR-10",),
            ),
        },
        measure,
        "The paper draws (a) from samples; the expected numbers are those of ten equally likely classes.",
    ),
)
