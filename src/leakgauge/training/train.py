"""SGD over one set of records, every batch update protected as the clients' would be."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import guards
from leakgauge.defenses.stages import Encoded
from leakgauge.errors import DomainError
from leakgauge.observation import send
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Progress, Records
from leakgauge.updates import trees


@dataclass(frozen=True)
class Checkpoint:
    """A training after ``step`` steps: the state dict of the trained model, and the optimiser's memory.

    ``task.at(checkpoint.state)`` is the task at this point; ``train(…, start=checkpoint)`` goes on from it.
    """

    step: int
    state: Mapping[str, Tensor]
    velocity: Mapping[str, Tensor]


def train(
    task: Task,
    records: Records,
    *,
    steps: int,
    batch: int = 32,
    learning_rate: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    nesterov: bool = False,
    seed: int = 0,
    keep: Sequence[int] = (0, 100, 500),
    start: Checkpoint | None = None,
    progress: Progress | None = None,
) -> tuple[Checkpoint, ...]:
    """``v ← μ v + (g + w θ); θ ← θ − η v`` over shuffled batches: the checkpoints at ``keep``, and the last.

    g is what the task's protection lets out of the batch, through all four stages, drawn anew in every step; for a
    recipe that shares weight changes, g is ``−change / recipe.learning_rate``. Steps beyond ``steps`` are not kept.
    Everything random is a function of ``(seed, step)``: a training that is resumed from a checkpoint ends where the
    uninterrupted one does. The user's model is left alone; running statistics are those of the batches seen.
    """
    size = _checked(task, records, steps, batch, learning_rate, momentum, weight_decay)
    model = copy.deepcopy(task.trained())
    begin = 0 if start is None else start.step
    if start is not None:
        model.load_state_dict(dict(start.state))
    theta = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    velocity = {n: torch.zeros_like(p) for n, p in theta.items()} if start is None else dict(start.velocity)
    measures = task.recipe.mode == "train" and any(isinstance(m, _BatchNorm) for m in model.modules())
    wanted, checkpoints = {*keep, steps}, []
    if begin in wanted:
        checkpoints.append(_checkpoint(begin, model, theta, velocity))
    for step in range(begin, steps):
        generator = torch.Generator().manual_seed(seed_of(seed, step, 1))
        few = task.protection.encode(records, _rows(len(records), size, step, seed), generator=generator)
        sent = send(task, few, theta, (seed, step)).observed
        share = 1.0 if task.recipe.shares == "gradient" else -1 / task.recipe.learning_rate
        slope = trees.mapped(lambda g, p, share=share: share * g + weight_decay * p, sent, theta)
        velocity = trees.mapped(lambda v, g: momentum * v + g, velocity, slope)
        taken = trees.mapped(lambda v, g: g + momentum * v, velocity, slope) if nesterov else velocity
        theta = trees.mapped(lambda p, v: p - learning_rate * v, theta, taken)
        if measures:
            _measure(model, theta, few)
        if step + 1 in wanted:
            checkpoints.append(_checkpoint(step + 1, model, theta, velocity))
        if progress is not None:
            progress(step + 1, steps, float(trees.norm(slope)))
    return tuple(checkpoints)


def _checked(
    task: Task, records: Records, steps: int, batch: int, learning_rate: float, momentum: float, weight_decay: float
) -> int:
    """The size of a batch, after a look at every number."""
    guards.count(steps, "steps", "train", least=0)
    guards.count(batch, "batch", "train")
    guards.positive(learning_rate, "learning_rate", "train")
    guards.inside(momentum, "momentum", "train", 0.0, 1.0, closed_low=True)
    guards.non_negative(weight_decay, "weight_decay", "train")
    for part in task.protection.input:
        part.check(task.domain, len(records))
    if not len(records):
        raise DomainError("there is no record to train on", where="train", remedy="give at least one")
    return min(batch, len(records))


def _rows(records: int, size: int, step: int, seed: int) -> Tensor:
    """The records of a step: each epoch shuffles them anew, and leaves out what does not fill a batch."""
    epoch, place = divmod(step, math.floor(records / size))
    order = torch.randperm(records, generator=torch.Generator().manual_seed(seed_of(seed, epoch, 0)))
    return order[place * size : (place + 1) * size]


@torch.no_grad()
def _measure(model: nn.Module, theta: Mapping[str, Tensor], few: Encoded) -> None:
    """One pass in train mode, for the running statistics alone."""
    _load(model, theta)
    model.train()(few.inputs.to(next(iter(theta.values()))))


@torch.no_grad()
def _load(model: nn.Module, theta: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in theta:
            parameter.copy_(theta[name])


def _checkpoint(step: int, model: nn.Module, theta: Mapping[str, Tensor], velocity: Mapping[str, Tensor]) -> Checkpoint:
    _load(model, theta)
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return Checkpoint(step, state, {name: value.clone() for name, value in velocity.items()})
