"""What a defense costs: test accuracy over seeds, and the time of a training step beside the undefended one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from leakgauge import guards
from leakgauge.defenses import Protection, protection
from leakgauge.errors import DomainError, nearest
from leakgauge.metrics import Interval, mean_interval
from leakgauge.task import Task
from leakgauge.training.accuracy import accuracy
from leakgauge.training.train import train
from leakgauge.types import Progress, Records


@dataclass(frozen=True)
class Utility:
    """One defense: accuracy of each seed, and the ratio of its training time to the undefended one of the same seed."""

    accuracies: tuple[float, ...]
    overheads: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return mean(self.accuracies)

    @property
    def overhead(self) -> float:
        """The median ratio: 1 is free."""
        return median(self.overheads)

    def interval(self) -> Interval:
        """The mean accuracy with its interval over seeds."""
        return mean_interval(self.accuracies)


def utility(
    task: Task,
    defenses: Mapping[str, str | Protection],
    records: Records,
    test: Records,
    *,
    steps: int,
    seeds: Sequence[int] = (0, 1, 2),
    rates: Mapping[str, float] | None = None,
    progress: Progress | None = None,
    **sgd: Any,
) -> dict[str, Utility]:
    """Train under every defense and every seed, in turn, and compare with the undefended training of the same seed.

    ``sgd`` are the options of :func:`train`; ``rates`` are learning rates of single defenses, by name (see
    :func:`~leakgauge.training.find_rate`). The trainings of one seed follow each other, so that a machine that
    gets slower does so for all; times are of the whole process, on whatever else runs beside it.
    """
    guards.count(steps, "steps", "utility")
    if not seeds:
        raise DomainError("there is no seed to train with", where="utility", remedy="give at least one")
    unknown = sorted(set(rates or {}) - set(defenses))
    if unknown:
        raise DomainError(
            f"there is no defense {unknown[0]!r} to train at a rate of its own",
            where="utility",
            remedy=nearest(unknown[0], defenses),
        )
    guarded = {name: task.protect(protection(how)) for name, how in defenses.items()}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in guarded}
    for i, seed in enumerate(seeds):
        _, plain = _trained(task.protect(Protection()), records, test, steps, seed, sgd)
        for name, under in guarded.items():
            own = {"learning_rate": rates[name]} if rates and name in rates else {}
            right, seconds = _trained(under, records, test, steps, seed, {**sgd, **own})
            measured[name].append((right, seconds / plain))
        if progress is not None:
            progress(i + 1, len(seeds), min(1 - right for pairs in measured.values() for right, _ in pairs))
    return {name: Utility(*map(tuple, zip(*pairs, strict=True))) for name, pairs in measured.items()}


def _trained(
    task: Task, records: Records, test: Records, steps: int, seed: int, sgd: Mapping[str, Any]
) -> tuple[float, float]:
    begun = time.process_time()
    last = train(task, records, steps=steps, seed=seed, keep=(), **sgd)[-1]
    seconds = time.process_time() - begun
    return accuracy(task.at(last.state), test, seed=seed), seconds
