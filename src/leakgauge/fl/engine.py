"""Where clients run: a seam between the rounds and whatever calls the clients of one round.

An engine gets the jobs of a round and gives back one answer for each. It owns no state and draws nothing: a job holds
the task, the records, the global parameters and the key of all its random numbers, so that every engine gives the same
answers up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import LeakgaugeError
from leakgauge.fl.history import Lost
from leakgauge.observation import send
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Records, Tree


@dataclass(frozen=True, repr=False)
class Job:
    """One client in one round. ``key`` is (seed, round, client), ``rate`` its learning rate before perturbation."""

    client: int
    task: Task
    records: Records
    params: Tree
    key: tuple[int, int, int]
    rate: float

    def __repr__(self) -> str:
        return f"Job(client {self.client} in round {self.key[1]}, {self.task.recipe.local_steps} steps)"


@dataclass(frozen=True, repr=False)
class Reply:
    """What a client sends: its weight change, after its protection. Counts of its records do not leave it."""

    client: int
    change: Tree


class Engine(Protocol):
    """Runs the jobs of a round, in any order, on anything."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
        """One answer per job: the update, or that the client was lost. It never raises for a single client."""


def work(job: Job) -> Reply:
    """A client's part of a round: choose the batches, then the one client function with its protection."""
    recipe, key = job.task.recipe, job.key
    rows = batches(len(job.records), recipe.minibatch or recipe.batch, recipe.local_steps, key)
    generator = torch.Generator().manual_seed(seed_of(*key, 1))
    encoded = job.task.protection.encode(job.records, rows.flatten(), generator=generator)
    return Reply(job.client, send(job.task, encoded, job.params, key, rate=job.rate).observed)


def batches(records: int, size: int, steps: int, key: tuple[int, ...]) -> Tensor:
    """The rows of every local step ``[steps, size]``: each pass shuffles the records anew, and leaves out what does
    not fill a batch."""
    per_pass = records // size
    orders = [
        torch.randperm(records, generator=torch.Generator().manual_seed(seed_of(*key, 0, epoch)))
        for epoch in range(-(-steps // per_pass))
    ]
    return torch.cat([order[: per_pass * size].view(per_pass, size) for order in orders])[:steps]


@dataclass(frozen=True)
class InProcess:
    """One client after the other, in this process. Each vanishes in a round with probability ``drop``.

    A client whose code raises is lost in its round, with what it said; a set-up that leakgauge refuses is not.
    """

    drop: float = 0.0

    def __post_init__(self) -> None:
        guards.inside(self.drop, "drop", "in-process engine", 0.0, 1.0, closed_low=True, closed_high=True)

    def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
        for job in jobs:
            chance = torch.rand(1, generator=torch.Generator().manual_seed(seed_of(*job.key, 7)))
            yield Lost(job.client, "it did not answer") if float(chance) < self.drop else _tried(job)


def _tried(job: Job) -> Reply | Lost:
    try:
        return work(job)
    except LeakgaugeError:
        raise
    except Exception as fault:
        return Lost(job.client, f"{type(fault).__name__}: {fault}")
