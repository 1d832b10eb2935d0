"""Exact recovery as an attack: certified records, and of the others that they were not recovered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.adversary.labels import labels_of
from leakgauge.attacks.calling import CheckedAttack, Options
from leakgauge.attacks.recovering import Methods, Recovery, check_search, recover
from leakgauge.client import LABELS
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.task import Task


def remaining(observation: Observation, recovery: Recovery, task: Task) -> Observation:
    """What is left to attack: the update without the certified examples, as that of a smaller batch."""
    first, size = observation.rounds[0], recovery.batch - len(recovery)
    sign = -1 if task.recipe.shares == "change" else 1
    left = {name: (sign * value).to(first.observed[name]) for name, value in recovery.left.items()}
    granted = {address: value for address, value in first.granted.items() if address != LABELS}
    labels = observation.labels
    if labels is not None and not labels.is_floating_point():
        rest = labels.tolist()
        for label in recovery.labels.tolist():
            if label in rest:
                rest.remove(label)
        granted[LABELS] = torch.tensor(rest[:size], dtype=labels.dtype)
    return Observation((replace(first, observed=left, granted=granted, clients=1),), size)


def completed(task: Task, recovery: Recovery, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Certified examples, then others: inputs and labels of the whole batch, and which are certified."""
    like = next(iter(task.params.values()))
    classes = recovery.labels if recovery.labels.dim() == 1 else recovery.labels.argmax(-1)
    certified = torch.arange(recovery.batch) < len(recovery)
    return torch.cat([recovery.inputs.to(like), inputs.to(like)]), torch.cat([classes.cpu(), labels.cpu()]), certified


@register("attack", "exact_recovery")
@dataclass(frozen=True, repr=False)
class ExactRecovery(CheckedAttack):
    """Take batches apart exactly, or say which records were not recovered.

    Peeling, then sparse directions on what is left; ``methods`` may be ``peeling`` or ``sparse`` alone. ``starts`` of
    the l1 search and ``samples`` of SPEAR's sampling bound the work. A record that is not certified is returned as a
    flat one, with False in ``certified``; ``adaptive()`` attacks it instead.
    """

    version: ClassVar[int] = 1
    takes_sums: ClassVar[bool] = True

    methods: Methods = "both"
    starts: int = 512
    samples: int = 1_000_000

    def __post_init__(self) -> None:
        check_search(self.methods, self.starts, self.samples, "exact_recovery")

    def recover(self, task: Task, observation: Observation, *, layer: str | None = None, seed: int = 0) -> Recovery:
        """See :func:`recover`."""
        return recover(
            task,
            observation,
            layer=layer,
            methods=self.methods,
            samples=self.samples,
            starts=self.starts,
            seed=seed,
        )

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        def flat(left: Sequence[Observation]) -> list[tuple[Tensor, Tensor]]:
            middle = 0.5 if task.domain.box else 0.0
            return [(torch.full((one.batch, *task.domain.shape), middle), labels_of(task, one)) for one in left]

        recoveries = [self.recover(task, one, seed=options["seed"]) for one in observations]
        return assembled(task, observations, recoveries, flat)


Others = Callable[[Sequence[Observation]], Sequence[tuple[Tensor, Tensor]]]
"""Inputs and labels for what is left of several observations."""


def assembled(
    task: Task, observations: Sequence[Observation], recoveries: Sequence[Recovery], others: Others
) -> Reconstruction:
    """Recoveries as one reconstruction; ``others`` fills in the examples that have no certificate."""
    open_ones = [i for i, recovery in enumerate(recoveries) if len(recovery) < recovery.batch]
    left = [remaining(observations[i], recoveries[i], task) for i in open_ones]
    filled = dict(zip(open_ones, others(left), strict=True))
    nothing = torch.zeros(0, *task.domain.shape), torch.zeros(0, dtype=torch.long)
    rows = [completed(task, recovery, *filled.get(i, nothing)) for i, recovery in enumerate(recoveries)]
    inputs, labels, certified = (torch.stack(column) for column in zip(*rows, strict=True))
    return Reconstruction(
        inputs,
        labels,
        inputs.new_zeros(len(inputs)),
        status=tuple(_status(recovery) for recovery in recoveries),
        certified=certified,
        notes=tuple(dict.fromkeys(note for recovery in recoveries for note in recovery.notes)),
    )


def _status(recovery: Recovery) -> str:
    return "exact" if recovery.complete else "exact in part" if len(recovery) else "not recovered"


__all__ = ["ExactRecovery", "assembled", "remaining"]
