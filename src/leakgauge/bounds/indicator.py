"""The Fisher indicator for a record of a task: how much its noisy update reveals, without an attack."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.bounds.fisher import Indicator, UpdateOf, cramer_rao
from leakgauge.client import update_of
from leakgauge.defenses import Chain, GaussianNoise, Identity, parts_of
from leakgauge.errors import NoDensityError, ObservationError
from leakgauge.task import Task
from leakgauge.types import Records
from leakgauge.updates import Batch

_WHERE = "Fisher indicator"


def fisher_indicator(task: Task, record: Records, *, chunk: int = 16) -> Indicator:
    """:func:`cramer_rao` at one record under the task's protection: maps of the update, then Gaussian noise.

    ``I(x) = JᵀJ/σ²`` with J the Jacobian, with respect to the record, of the update just before the noise (for example
    after clipping); the label is assumed to be known. **An indicator, not a proof**: it holds for unbiased estimators
    only. Parts after the noise are post-processing and are ignored; they can only lower the information.
    """
    at, noise = _noise(task)
    if len(record) != 1 or task.recipe.batch != 1:
        raise ObservationError(
            f"{len(record)} records in a batch of {task.recipe.batch}",
            where=_WHERE,
            remedy="give one record of a client with batch = 1",
        )
    first = next(iter(task.params.values()))
    return cramer_rao(_update_at(task, at, record.labels), record.inputs[0].to(first), noise.std, chunk=chunk)


def _noise(task: Task) -> tuple[int, GaussianNoise]:
    for i, part in enumerate(parts_of(task.protection.update)):
        if isinstance(law := part.noise_law, GaussianNoise):
            return i, law
    raise NoDensityError(f"{task.protection!r} adds no Gaussian noise", where=_WHERE, remedy="add gaussian(std=…)")


def _update_at(task: Task, at: int, labels: Tensor) -> UpdateOf:
    """The update of x as one tensor, after the first ``at`` parts."""
    before = Chain(parts_of(task.protection.update)[:at] or (Identity(),))

    def update(x: Tensor) -> Tensor:
        tree = update_of(task.working, task.params, task.buffers, x.unsqueeze(0), labels, task.working_recipe)
        moved = before.apply(Batch.of({name: value.unsqueeze(0) for name, value in tree.items()}), {})
        if moved is None:
            raise NoDensityError(f"{before!r} is not a differentiable map", where=_WHERE, remedy="leave it out")
        assert isinstance(moved, Batch)
        return torch.cat([value.flatten() for value in moved.dense().values()])

    return update
