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
    releases = mechanism.releases(SEEDS).unflatten(0, (-1, PER_CLASS)).flatten(1, 2)  # [classes, releases, entries]
    centres = releases.mean(1)
    noise = releases.var(1).mean(0)
    # of what varies between the means of classes, this much is chance
    between = (centres.var(0) - noise / releases.shape[1]).clamp(min=0)
    weight = between / (noise * (noise + between)).clamp(min=torch.finfo(torch.float64).tiny)
    weight = torch.where(between > 0, weight, 0.0)
    scaled = centres * weight.sqrt()
    scaled = scaled / scaled.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    rows = torch.stack([flat(one.rounds[0].observed).double().cpu() for one in observations]) * weight.sqrt()
    return [label.view(1) for label in (rows @ scaled.T).argmax(1)]
