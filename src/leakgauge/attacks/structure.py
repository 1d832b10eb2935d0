"""What the structure of a network gives away exactly: asked first, before anything is optimised.

A reader looks at the task and the observations and answers with the attack that reads the records off, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leakgauge.adversary import Attack
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import Analytic
from leakgauge.observation import Observation
from leakgauge.task import Task

Reader = Callable[[Task, Sequence[Observation]], Attack | None]
READERS: list[Reader] = []


def reader(function: Reader) -> Reader:
    """Register a reader; later ones are asked after earlier ones."""
    READERS.append(function)
    return function


def exact_attack(task: Task, observations: Sequence[Observation]) -> Attack | None:
    """The first attack that needs no optimisation here."""
    return next((attack for ask in READERS if (attack := ask(task, observations)) is not None), None)


@reader
def first_layer(task: Task, observations: Sequence[Observation]) -> Attack | None:
    """One example through a first linear layer with a bias."""
    if task.protection.input or not all(one.batch == 1 for one in observations):
        return None
    return Analytic() if Adaptive().against(task).exact else None
