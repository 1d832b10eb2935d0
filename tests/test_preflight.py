"""Preflight: the structure alone says what leaks, in under a second."""

from __future__ import annotations

import time
from collections import OrderedDict

import pytest
import torch
from torch import nn

from leakgauge import Recipe, Task, data, models
from leakgauge.losses import SquaredError
from leakgauge.preflight import Leak, preflight
from leakgauge.types import Domain

DOMAIN = Domain("image", (1, 8, 8), 4)


def found(model: nn.Module, **recipe: object) -> dict[str, Leak]:
    return {leak.name: leak for leak in preflight(Task(model, DOMAIN, Recipe(**recipe)))}  # type: ignore[arg-type]


def dense(bias: bool = True, width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width, bias=bias), nn.ReLU(), nn.Linear(width, 4))


def convolutional(norm: bool = False, bias: bool = True) -> nn.Module:
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2) if norm else nn.Identity(), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(72, 16, bias=bias), nn.ReLU(), nn.Linear(16, 4))


def test_a_first_linear_layer_is_exact_at_batch_1() -> None:
    leak = found(dense())["first linear layer"]
    assert leak.severity == "exact"
    assert "exactly" in leak.sentence
    assert found(dense(), batch=4)["first linear layer"].severity == "high"
    assert "brightness" in found(dense(bias=False))["first linear layer"].sentence
    assert "first linear layer" not in found(convolutional())


def test_normalisation_hides_nothing() -> None:
    assert "first linear layer" in found(models.normalised(dense(), [0.3], [0.2]))


def test_the_first_layer_is_the_one_that_runs_first() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(32, 4)
            self.first = nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.last(self.first(x.flatten(1)).relu())
            return made

    assert "'first'" in found(Backwards())["first linear layer"].sentence


def test_frozen_layers_leak_nothing() -> None:
    model = dense()
    next(m for m in model.modules() if isinstance(m, nn.Linear)).requires_grad_(False)
    assert "first linear layer" not in found(model)


def test_inner_layers() -> None:
    assert "72 inputs exactly" in found(convolutional())["inner linear layer"].sentence
    assert "rank 8" in found(convolutional(), batch=8)["batch smaller than a layer"].sentence
    assert "batch smaller than a layer" not in found(convolutional(), batch=16)


def test_labels() -> None:
    assert found(dense())["labels"].severity == "high"
    assert found(dense(), batch=3)["labels"].severity == "medium"
    assert "labels" not in found(dense(), loss=SquaredError())
    pooled = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 4, 8), flat=nn.Flatten()))
    assert "labels" not in found(pooled)


def test_batch_norm_statistics() -> None:
    assert "means and variances" in found(convolutional(norm=True), mode="train")["batch-norm statistics"].sentence
    assert "batch-norm statistics" not in found(convolutional(norm=True), mode="eval")
    assert "batch-norm statistics" not in found(convolutional(), mode="train")


def test_equations() -> None:
    assert found(dense())["more equations than unknowns"].severity == "medium"
    assert "more equations than unknowns" not in found(convolutional(), batch=32)


def test_worst_first_and_json() -> None:
    leaks = preflight(Task(dense(), DOMAIN))
    assert [leak.severity for leak in leaks] == sorted(
        (leak.severity for leak in leaks), key=["exact", "high", "medium", "low"].index
    )
    assert leaks[0].as_json().keys() == {"name", "severity", "sentence"}


@pytest.mark.parametrize("name", ["bayes_cnn", "dlg_lenet", "mlp"])
def test_under_a_second(name: str) -> None:
    domain = data.load("fashion_mnist_sample").domain
    task = Task(models.build(name, domain), domain)
    start = time.process_time()
    assert preflight(task)
    assert time.process_time() - start < 1
