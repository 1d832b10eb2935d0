"""SPEAR's batch sizes: whole batches recovered exactly from sparse directions of one update.

The paper recovers 99 % of batches of 20 on a GPU; the samples needed double with every record. Ours on one core.
"""

from __future__ import annotations

import torch

from leakgauge import data, models
from leakgauge.attacks import recover
from leakgauge.client import Recipe
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Size, Table, near
from leakgauge.papers.sources import SPEAR
from leakgauge.task import Task
from leakgauge.types import Records, Threat

SMOKE = "fashion_mnist_sample"


def measure(name: str, batch: int, width: int, batches: int, seed: int = 1000) -> dict[str, list[float]]:
    """Whether every record of a batch was recovered within 1e-6 in every pixel, batch by batch."""
    dataset, whole = data.load(name), []
    for number in range(batches):
        model = models.build(f"mlp(width={width}, depth=2)", dataset.domain, seed=seed + number)
        task = Task(model.double(), dataset.domain, Recipe(batch=batch))
        drawn = dataset.sample(batch, seed=seed + number, split="test")
        private = Records(drawn.inputs.double(), drawn.labels, drawn.domain)
        (observation,) = observe(task, private, threat=Threat(labels="inferred"))
        recovery = recover(task, observation, methods="sparse")
        if not len(recovery.inputs):
            whole.append(0.0)
            continue
        gaps = torch.cdist(private.inputs.flatten(1), recovery.inputs.flatten(1), p=float("inf"))
        whole.append(float(bool((gaps.amin(1) < 1e-6).all())))
    return {f"{name}, b = {batch}, width {width}": whole}


def _work(name: str, cases: tuple[tuple[int, int], ...], batches: int) -> dict[str, dict[str, object]]:
    return {f"{name}, b = {b}": {"name": name, "batch": b, "width": w, "batches": batches} for b, w in cases}


CASES = ((8, 200), (12, 200), (16, 400), (20, 400))
TABLES = (
    Table(
        "beyond/spear",
        "SPEAR: share of whole batches recovered exactly",
        SPEAR,
        (
            Cell("mnist, b = 8, width 200", near(1, 0), claim=True, share=True),
            Cell("mnist, b = 12, width 200", near(1, 0), share=True),
            Cell("mnist, b = 16, width 400", near(1, 0.2), share=True),
            Cell("mnist, b = 20, width 400", near(0.99, 0.1), share=True),
            Cell(f"{SMOKE}, b = 4, width 100", near(1, 0), claim=True, stand_in=True, share=True),
        ),
        {
            "smoke": Size(_work(SMOKE, ((4, 100),), 1), ("batches of 4", "Fashion-MNIST", "one batch")),
            "small": Size(_work("mnist", CASES, 3), ("3 batches each",)),
            "full": Size(_work("mnist", CASES, 100)),
        },
        measure,
        __doc__ or "",
        {"": "the search is exponential in the batch size, and ours stops on one core where theirs had a GPU"},
    ),
)
