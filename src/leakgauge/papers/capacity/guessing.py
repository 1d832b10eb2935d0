"""Bounds above attacks: which of N secrets went through a protection, guessed exactly and by the solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge import data, models
from leakgauge.adversary import Adversary, adam, density
from leakgauge.bounds import Bound, LogEstimate, bound_of_task, log_capacity_directions, log_capacity_points
from leakgauge.defenses import Gaussian, UpdatePart, VonMisesFisher, parts_of
from leakgauge.observation import Observation, observe
from leakgauge.priors import Finite
from leakgauge.task import Task
from leakgauge.types import Records, Tree
from leakgauge.updates import norm

MEMORY = 50_000_000
"""Small networks and many problems: what stays in the cache is twice as fast."""


@dataclass(frozen=True)
class Guessing:
    """Which of N secrets went through a protection: exact posterior maximiser, solver, and what bounds both.

    ``channel`` is the log capacity of the N-row channel by Monte Carlo, ``bound`` that of the whole mechanism with
    its ceiling at a best guess of 1/N. In the first ``attacked`` draws the solver was right ``reached`` times, the
    exact one ``exact_there``.
    """

    protection: str
    secrets: int
    draws: int
    exact: int
    channel: LogEstimate
    bound: Bound
    attacked: int
    reached: int
    exact_there: int


def guessing(
    how: UpdatePart,
    *,
    secrets: int = 64,
    draws: int = 2000,
    attacked: int = 200,
    label: int = 3,
    model: str = "mlp(width=16, depth=1)",
    name: str = "mnist",
    seed: int = 0,
) -> Guessing:
    """``secrets`` images of one class (so that labels tell nothing), each as likely, through a network's update.

    The exact maximiser compares the release with the N protected updates; the solver climbs
    ``log p(observed | x) + log p(x)``, p(x) being the N records blurred, from every record, and the secret nearest to
    its reconstruction is its guess.
    """
    dataset = data.load(name)
    where = np.flatnonzero(dataset.labels("test") == label)[:secrets]
    known = dataset.test[torch.as_tensor(where)]
    task = Task(models.build(model, dataset.domain, seed=seed), dataset.domain).protect(how)
    truth = torch.arange(draws) % secrets  # each as often as the others: which were drawn is then no chance
    observations = observe(task, known[truth], seed=seed + 2)
    rows = torch.stack([_flat(_at_the_noise(task, known[[i]])) for i in range(secrets)])
    received = torch.stack([_flat(one.rounds[0].observed) for one in observations])
    exact = _nearest(received, rows) == truth
    guessed = _nearest(_solved(task, observations[:attacked], known), known.inputs.flatten(1))
    rng = np.random.default_rng(seed + 3)
    noise = parts_of(how)[-1]
    points = rows.double().numpy()
    if isinstance(noise, VonMisesFisher):
        channel = log_capacity_directions(points, noise.kappa, rng=rng, draws=20_000)
    elif isinstance(noise, Gaussian):
        channel = log_capacity_points(points, noise.std, rng=rng, draws=20_000)
    else:
        raise TypeError(f"{noise!r} is neither Gaussian nor von Mises-Fisher")
    return Guessing(
        repr(how),
        secrets,
        draws,
        int(exact.sum()),
        channel,
        bound_of_task(task, guess=1 / secrets),
        attacked,
        int((guessed == truth[:attacked]).sum()),
        int(exact[:attacked].sum()),
    )


def _solved(task: Task, observations: Sequence[Observation], known: Records) -> Tensor:
    adversary = Adversary(
        likelihood=density(),
        prior=Finite(known.inputs.numpy(), std=0.1),
        solver=adam(lr=0.02, steps=5),
        start="prior",
        restarts=len(known),
    )
    return adversary(task, observations, memory=MEMORY).inputs.flatten(1)


def _at_the_noise(task: Task, record: Records) -> dict[str, Tensor]:
    """The update of a record at the door of the noise: clipped, and on the sphere for directions."""
    clipping, noise = parts_of(task.protection.update)
    update = clipping.release(task.update(record), None, generator=torch.Generator()).observed
    length = norm(update) if isinstance(noise, VonMisesFisher) else 1.0
    return {name: value / length for name, value in update.items()}


def _nearest(points: Tensor, rows: Tensor) -> Tensor:
    """The nearest row of each, which for Gaussian and von Mises-Fisher noise is the likeliest."""
    return torch.cdist(points.double(), rows.double()).argmin(1)


def _flat(update: Tree) -> Tensor:
    return torch.cat([value.flatten() for value in update.values()])
