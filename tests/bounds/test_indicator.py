"""The Fisher indicator of a task: a linear client's by hand, and what it refuses."""

from __future__ import annotations

import pytest
import torch

import leakgauge as lg
from leakgauge import bounds
from leakgauge.client import Recipe
from leakgauge.errors import NoDensityError, ObservationError
from leakgauge.testing import small_records, small_task


def test_it_is_the_jacobian_of_the_protected_update() -> None:
    task, record = small_task().protect("clip(norm=0.05) | gaussian(std=0.2)").to(dtype=torch.float64), small_records(1)
    found = bounds.fisher_indicator(task, record)

    def update(x: torch.Tensor) -> torch.Tensor:
        one = lg.client.update_of(task.working, task.params, task.buffers, x[None], record.labels, task.recipe)
        flat = torch.cat([value.flatten() for value in one.values()])
        return flat * (0.05 / flat.norm()).clamp(max=1.0)

    x = record.inputs[0].double()
    pixels = torch.eye(x.numel(), dtype=x.dtype).view(-1, *x.shape)
    columns = [torch.autograd.functional.jvp(update, x, pixel)[1] for pixel in pixels]
    square = float(torch.stack(columns).square().sum())
    assert found.harmonic == pytest.approx(0.04 * len(pixels) / square, rel=1e-6)
    assert not found.is_proof
    louder = bounds.fisher_indicator(task.protect("clip(norm=0.05) | gaussian(std=0.4)"), record)
    assert louder.harmonic == pytest.approx(4 * found.harmonic)


def test_what_it_needs() -> None:
    record = small_records(1)
    with pytest.raises(NoDensityError, match="adds no Gaussian noise"):
        bounds.fisher_indicator(small_task().protect("laplace(scale=0.1)"), record)
    with pytest.raises(ObservationError, match="one record of a client"):
        bounds.fisher_indicator(small_task().protect("gaussian(std=0.1)"), small_records(2))
    pruned = small_task().protect("random_prune(p=0.5) | gaussian(std=0.1)")
    with pytest.raises(NoDensityError, match="not a differentiable map"):
        bounds.fisher_indicator(pruned, record)
    plain = small_task()
    batch = lg.Task(plain.model, plain.domain, Recipe(batch=2)).protect("gaussian(std=0.1)")
    with pytest.raises(ObservationError, match="in a batch of 2"):
        bounds.fisher_indicator(batch, record)
