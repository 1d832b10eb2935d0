"""What an attack is, ours or anybody's: it sees a task and observations, and returns a reconstruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from leakgauge.adversary.adversary import Reconstruction
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Progress

Modelled = Literal["none", "one", "any"]
"""Which defenses an attack models: none (generic), those it was made for, or whatever it meets (adaptive)."""


@runtime_checkable
class Attack(Protocol):
    """An attack. One that looks at the defense says so in an attribute ``models_defense`` (see :data:`Modelled`)."""

    def __call__(
        self, task: Task, observations: Sequence[Observation], *, seed: int = 0, progress: Progress | None = None
    ) -> Reconstruction: ...


def models_defense(attack: Attack) -> Modelled:
    """Which defenses an attack models; one that does not say is generic."""
    modelled: Modelled = getattr(attack, "models_defense", "none")
    return modelled
