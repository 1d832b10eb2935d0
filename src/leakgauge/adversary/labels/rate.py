"""A learning rate that is hidden, as the length of an update gives it away.

A client of drawn inputs is simulated at a small rate: the rate at which its update would be as long as the observed one
is the first guess. Of several local steps a length is not proportional to the rate, and it depends on the labels, for
output gradients of different classes partly cancel: a further guess comes from a client at the guess before, with the
labels that were read there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leakgauge.adversary.labels.layer import drawn_inputs
from leakgauge.adversary.starts import SMALL_RATE, lengths
from leakgauge.client import LEARNING_RATE
from leakgauge.observation import Round
from leakgauge.task import Task
from leakgauge.types import Records, Tree
from leakgauge.updates import norm, stacked

LEAST, MOST = 1e-8, 1e4
"""Rates that are believed."""
TOO_LONG = 0.1
"""What a rate is multiplied by at which a simulated client diverges."""


def hides_rate(task: Task, one: Round) -> bool:
    """Whether the learning rate of a round is a nuisance that was not granted."""
    return LEARNING_RATE in task.nuisances and LEARNING_RATE not in one.granted


def first_rate(task: Task, one: Round, batch: int) -> float:
    """The rate that a client with all classes alike suggests, before any label is read."""
    return fitted_rate(task, one, torch.arange(batch) % task.domain.classes, SMALL_RATE)


def fitted_rate(task: Task, one: Round, labels: Tensor, rate: float) -> float:
    """``rate · ‖observed‖ / ‖simulated at rate‖``, the latter with these labels; noise is taken off the former."""
    length = float(norm(simulated(task, one, labels, rate)))
    wanted = float(lengths(stacked([one.observed]), task.protection.chain)[0])
    factor = wanted / max(length, torch.finfo(torch.float32).tiny) if math.isfinite(length) else TOO_LONG
    return min(max(rate * factor, LEAST), MOST)


def simulated(task: Task, one: Round, labels: Tensor, rate: float | None) -> Tree:
    """The update of a client with these labels and drawn inputs, without a defense; ``rate`` replaces the recipe's."""
    records = with_drawn_inputs(task, labels)
    drawn = task.draw(len(records), (0,))
    if rate is not None:
        drawn[LEARNING_RATE] = torch.tensor(rate)
    return task.update(records, one.params, drawn)


def with_drawn_inputs(task: Task, labels: Tensor) -> Records:
    """Records with these labels and inputs that anybody can draw."""
    return Records(drawn_inputs(task.domain, len(labels)), labels, task.domain)
