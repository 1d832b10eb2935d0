"""Lemma B.1: every row of the first layer's gradient is a linear combination of the images of the batch."""

from __future__ import annotations

import torch

from leakgauge import data, models
from leakgauge.client import Recipe
from leakgauge.papers.contract import SCALES, Cell, Size, Table, at_least, at_most
from leakgauge.papers.sources import GRADATTACK
from leakgauge.task import Task
from leakgauge.types import Records

ROUNDING = 1e-10
"""What float64 leaves of a projection of 784 pixels, relative, with room."""


def measure(depth: int, batch: int, seed: int = 0) -> dict[str, list[float]]:
    """How much of the gradient lies outside the span of the batch, and outside that of one image less."""
    sample = data.load("fashion_mnist_sample")
    task = Task(
        models.build(f"mlp(width=24, depth={depth})", sample.domain, seed=seed), sample.domain, Recipe(batch=batch)
    )
    task = task.to(dtype=torch.float64)
    drawn = sample.sample(batch, seed=seed, split="test")
    records = Records(drawn.inputs.double(), drawn.labels, drawn.domain)
    rows = next(iter(task.update(records).values()))
    images = records.inputs.flatten(1)
    outside = [_outside(rows, images), _outside(rows, images[1:])]
    where = f"{depth} hidden layers, {batch} images"
    return {f"{where}: outside the span": [outside[0]], f"{where}: outside the span of all but one": [outside[1]]}


def _outside(rows: torch.Tensor, images: torch.Tensor) -> float:
    """The share of the rows' norm that is orthogonal to all images."""
    basis = torch.linalg.qr(images.T).Q
    return float((rows - rows @ basis @ basis.T).norm() / rows.norm())


CASES = [(depth, batch) for depth in (1, 2, 3) for batch in (2, 4, 16)]
TABLES = (
    Table(
        "gradattack/lemma-b-1",
        "Lemma B.1: first-layer gradients are linear combinations of the inputs",
        GRADATTACK,
        tuple(
            cell
            for depth, batch in CASES
            for where in [f"{depth} hidden layers, {batch} images"]
            for cell in (
                Cell(f"{where}: outside the span", at_most(ROUNDING, ours=True), claim=True),
                Cell(f"{where}: outside the span of all but one", at_least(1e-3, ours=True), claim=True),
            )
        ),
        dict.fromkeys(SCALES, Size({f"{d}, {b}": {"depth": d, "batch": b} for d, b in CASES})),
        measure,
        "Shares of the gradient's norm, float64. That no image can be left out shows that the span is not everything.",
    ),
)
