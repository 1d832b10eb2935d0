"""Labels behind a part that says nothing of itself: the class whose simulated releases the observed one resembles."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.adversary.simulation.mechanism import Mechanism, flat, known_updates
from leakgauge.observation import Observation
from leakgauge.task import Task

PER_CLASS = 4
SEEDS = range(4)


def labels_by_simulation(task: Task, observations: Sequence[Observation]) -> list[Tensor]:
    """The label of every observation of one example, ``[1]`` each, by the cosine to the mean release of every class.

    Entries are weighed by how much releases of different classes vary beside those of one class, so that noise on some
    of them does not count. Of larger batches nothing is said here.
    """
    classes = [c for c in range(task.domain.classes) for _ in range(PER_CLASS)]
    mechanism = Mechanism(task.protection.chain, (), tuple(known_updates(task, len(classes), classes=classes)))
    drawn = mechanism.releases(SEEDS)  # [updates, seeds, entries]
    dropped = (drawn == 0) & (drawn != 0).any(1, keepdim=True)  # by chance: it says nothing about the class
    releases, sent = (t.unflatten(0, (-1, PER_CLASS)).flatten(1, 2) for t in (drawn, ~dropped))
    count = sent.sum(1).clamp(min=1)
    centres = releases.sum(1) / count
    noise = ((releases - centres.unsqueeze(1)).square() * sent).sum(1).div(count).mean(0)
    # of what varies between the means of classes, this much is chance
    between = (centres.var(0) - noise / count.double().mean(0)).clamp(min=0)
    weight = between / (noise * (noise + between)).clamp(min=torch.finfo(torch.float64).tiny)
    weight = torch.where(between > 0, weight, 0.0)
    drops = bool(dropped.any())
    return [_nearest(flat(one.rounds[0].observed).double().cpu(), centres, weight, drops) for one in observations]


def _nearest(observed: Tensor, centres: Tensor, weight: Tensor, drops: bool) -> Tensor:
    weight = torch.where(observed != 0, weight, 0.0) if drops else weight
    lengths = (weight * centres.square()).sum(1).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return ((centres * weight) @ observed / lengths).argmax().view(1)
