"""Which attacks suit a captured update: ``standard()``, whose fixed portfolio is blind to an unknown learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from leakgauge.adversary import Reconstruction
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.choosing import Chooser
from leakgauge.attacks.standard import Standard
from leakgauge.defenses import Protection
from leakgauge.observation import Observation
from leakgauge.task import Task

Attack = Callable[..., Reconstruction]


@dataclass(frozen=True, repr=False)
class Searching:
    """What ``standard()`` searches for where it would read a record off."""

    standard: Standard = field(default_factory=Standard)

    @property
    def steps(self) -> int:
        return self.standard.steps

    def __call__(self, task: Task, observations: Sequence[Observation], **how: Any) -> Reconstruction:
        return self.standard.search(task, observations)(task, observations, **how)

    def __repr__(self) -> str:
        return f"{self.standard!r} without reading off"


def attacks_on(task: Task, batch: int) -> list[Attack]:
    """``standard()``, with what it would search for beside what it reads off.

    Nothing shows that a captured update is free of noise or of other examples, and then what is read off is a mixture:
    the guess that explains more of the update wins. Where a defense is declared, the adversary knows.
    """
    read_off = batch == 1 and task.protection == Protection() and Adaptive().against(task).exact
    return [Standard(), Searching()] if read_off else [Standard()]


def name_of(attack: Attack) -> str:
    """The attack as a finding names it: one whose scores change with its version is quoted with that."""
    version = attack.standard.version if isinstance(attack, Searching) else getattr(attack, "version", None)
    return f"{attack!r}, version {version}" if isinstance(attack, Searching | Chooser) else repr(attack)
