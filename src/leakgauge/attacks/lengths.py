"""Directions first, then lengths: of updates whose scale is not hidden, the norm tells something, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakgauge.adversary import Adversary, Density, Reconstruction, adam, cosine, cosine_decay, l2, through
from leakgauge.attacks.adapting import hint_of
from leakgauge.client import LABELS, LEARNING_RATE
from leakgauge.defenses import Protection
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Progress

LENGTHS = through(l2(relative=True))
"""Relative distance after the map that the protection applies."""


def lengths_tell(adversary: Adversary, protection: Protection) -> bool:
    """Whether directions of thresholded updates are matched, and lengths may be, too: no scale is hidden."""
    some = any(hint_of(part).lengths for part in protection.chain.parts)
    return some and adversary.likelihood == through(cosine()) and not protection.training


def hides_scale(task: Task, observations: Sequence[Observation]) -> bool:
    """Whether the learning rate of any round is a nuisance that was not granted."""
    rounds = [each for one in observations for each in one.rounds]
    return LEARNING_RATE in task.nuisances and any(LEARNING_RATE not in each.granted for each in rounds)


def closer(adversary: Adversary) -> Adversary:
    """What goes on where directions alone were matched: smaller steps, by relative distance; a density stays."""
    smaller = adam(lr=0.03, steps=adversary.solver.steps, sign="soft", schedule=cosine_decay(floor=0.01))
    likelihood = adversary.likelihood if isinstance(adversary.likelihood, Density) else LENGTHS
    return replace(adversary, likelihood=likelihood, solver=smaller, restarts=1)


def with_lengths(
    adversary: Adversary, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]
) -> Reconstruction:
    """First by direction, then, from where that ended, as many steps by relative distance."""
    tell: Progress | None = how["progress"]

    def told(half: int) -> Progress | None:
        return tell and (lambda done, total, objective: tell(half * total + done, 2 * total, objective))

    first = adversary(task, observations, **{**how, "progress": told(0)})
    if adversary.labels == "joint":  # what the first stage found is where the second begins
        observations = [
            one if one.labels is not None else one.given(LABELS, labels)
            for one, labels in zip(observations, first.labels, strict=True)
        ]
    last = closer(adversary)(task, observations, **{**how, "progress": told(1)}, begin=first.inputs)
    return replace(last, evaluations=first.evaluations + last.evaluations)


__all__ = ["LENGTHS", "closer", "hides_scale", "lengths_tell", "with_lengths"]
