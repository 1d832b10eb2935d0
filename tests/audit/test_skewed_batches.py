"""Without a defense a skewed batch leaks by itself: no stronger defense has to be listed for that to be found."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakgauge as lg


@pytest.mark.slow
def test_an_undefended_batch_with_a_repeated_class_is_recognised() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(784, 10, bias=False)),
    )
    study = lg.Study(
        network,
        lg.data.load("fashion_mnist_sample"),
        defenses={"none": "identity()"},
        recipe=lg.Recipe(batch=8),
        updates=7,
        class_counts=[5, 1, 1, 1],
        threat=lg.Threat(labels="inferred"),
    )
    assert lg.audit(study).verdicts["none"] == "recognisable"
