"""Directions first, then lengths: of updates whose scale is not hidden, the norm tells something, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leakgauge.adversary import Adversary, Density, Reconstruction, adam, cosine, cosine_decay, l2, through
from leakgauge.attacks.adapting import hint_of
from leakgauge.attacks.calling import Options, with_labels, within
from leakgauge.client import LEARNING_RATE
from leakgauge.defenses import Protection
from leakgauge.observation import Observation
from leakgauge.task import Task

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
    adversary: Adversary, task: Task, observations: Sequence[Observation], options: Options
) -> Reconstruction:
    """First by direction, then, from where that ended, as many steps by relative distance."""
    steps = adversary.solver.steps
    first = adversary(task, observations, **within(options, 0, 2 * steps))
    if adversary.labels == "joint":  # what the first stage found is where the second begins
        observations = with_labels(observations, first)
    last = closer(adversary)(task, observations, **within(options, steps, 2 * steps), begin=first.inputs)
    return replace(last, evaluations=first.evaluations + last.evaluations)


__all__ = ["LENGTHS", "closer", "hides_scale", "lengths_tell", "with_lengths"]
