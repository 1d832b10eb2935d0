"""Parts that only the evidence needs: leaks of a chosen strength, and adversaries that were crippled on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from leakgauge.adversary import Reconstruction
from leakgauge.attacks import inverting_gradients
from leakgauge.client import LABELS
from leakgauge.defenses import UpdatePart
from leakgauge.expr import Part
from leakgauge.observation import Observation
from leakgauge.task import ClientContext, Task
from leakgauge.types import Context, Domain, Release, Tree


@dataclass(frozen=True, repr=False)
class Plant(UpdatePart):
    """A leak of known strength: the first linear layer sends ``s·x + (1 − s)·noise`` where it would send x.

    ``analytic()`` reads exactly that off the update. A share ``leaks`` of the clients leaks, the others send noise;
    with a ``label`` only clients whose first record has it leak.
    """

    strength: float = 1.0
    leaks: float = 1.0
    label: int | None = None

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        assert isinstance(context, ClientContext)
        x = context.records.inputs[0].flatten()
        noise = torch.rand(x.shape, generator=generator)
        leaks = float(torch.rand(1, generator=generator)) < self.leaks
        leaks = leaks and self.label in (None, int(context.records.labels[0]))
        image = self.strength * x + (1 - self.strength) * noise if leaks else noise
        weight = next(name for name, value in update.items() if value.dim() == 2)
        bias = weight.replace("weight", "bias")
        return Release({**update, weight: torch.outer(update[bias], image.to(update[bias]))})


class Energy(Part):
    """``½‖z‖²``: a loss that knows no label."""

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return 0.5 * outputs.square().sum(-1)


@dataclass(frozen=True, repr=False)
class WrongLoss(Part):
    """Inverting gradients by somebody who believes that clients minimise the energy of their outputs."""

    steps: int = 60

    def __call__(self, task: Task, observations: Sequence[Observation], **given: Any) -> Reconstruction:
        believed = replace(task, recipe=replace(task.recipe, loss=Energy()))
        return inverting_gradients(self.steps)(believed, observations, **given)


@dataclass(frozen=True, repr=False)
class WrongLabels(Part):
    """Inverting gradients by somebody who takes every label for the next class."""

    steps: int = 60

    def __call__(self, task: Task, observations: Sequence[Observation], **given: Any) -> Reconstruction:
        classes = task.domain.classes
        wrong = [o.given(LABELS, (o.labels + 1) % classes) for o in observations if o.labels is not None]
        return inverting_gradients(self.steps)(task, wrong, **given)


def table_network(domain: Domain) -> nn.Module:
    """A plain network for tables: 100 and 50 hidden units with ReLU."""
    return nn.Sequential(
        nn.Linear(domain.size, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, domain.classes)
    )
