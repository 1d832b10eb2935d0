"""How attacks are called: observations are checked, options go on to the adversaries that an attack is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from leakgauge.adversary import Reconstruction
from leakgauge.client import LABELS
from leakgauge.expr import Part
from leakgauge.observation import Observation, check
from leakgauge.task import Task
from leakgauge.types import Progress

Options = Mapping[str, Any]
"""Of a call: ``seed``, ``progress``, and what adversaries take beside them (``device``, ``path``, ``memory``)."""


class CheckedAttack(Part):
    """An attack whose call refuses what cannot be attacked; ``_attack`` says what is done with the rest.

    ``takes_sums``: the update may be the sum of several clients' own.
    """

    takes_sums: ClassVar[bool] = False

    def __call__(
        self,
        task: Task,
        observations: Sequence[Observation],
        *,
        seed: int = 0,
        progress: Progress | None = None,
        **others: Any,
    ) -> Reconstruction:
        check(task, observations, sums=self.takes_sums)
        return self._attack(task, observations, {"seed": seed, "progress": progress, **others})

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        raise NotImplementedError


def within(options: Options, before: int, total: int) -> dict[str, Any]:
    """The options of a stage, whose progress is told as that of the whole."""
    tell: Progress | None = options["progress"]
    told = tell and (lambda done, _, objective: tell(before + done, total, objective))
    return {**options, "progress": told}


def with_labels(observations: Sequence[Observation], last: Reconstruction) -> list[Observation]:
    """For the next stage: labels that are not granted are those of the last one."""
    return [
        one if one.labels is not None else one.given(LABELS, labels)
        for one, labels in zip(observations, last.labels, strict=True)
    ]


__all__ = ["CheckedAttack", "Options", "with_labels", "within"]
