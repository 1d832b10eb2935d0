"""The learning rate of a defense: the best of a few on records that are neither trained on nor reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.task import Task
from leakgauge.training.accuracy import accuracy
from leakgauge.training.train import train
from leakgauge.types import Records

BEYOND = 4
"""How often the search may go on beyond the rates it was given."""


@dataclass(frozen=True)
class Rates:
    """Learning rate → validation accuracy, and the best of them: of equals, the smallest."""

    tried: Mapping[float, float]

    @property
    def best(self) -> float:
        return max(sorted(self.tried), key=lambda rate: self.tried[rate])


def find_rate(
    task: Task,
    records: Records,
    validation: Records,
    *,
    steps: int,
    rates: Sequence[float] = (0.01, 0.03, 0.1),
    seed: int = 0,
    **sgd: Any,
) -> Rates:
    """Train with every rate; while the best is at an end, go on beyond it by the same factor.

    A defense changes the scale of what is sent (a sign is always ±1, PRECODE adds layers), so that one rate for all
    would compare rates, not defenses.
    """
    tried: dict[float, float] = {}
    if len(set(rates)) < 2:
        raise DomainError("a search needs two rates or more", where="find_rate", remedy="give at least two")

    def attempt(rate: float) -> None:
        guards.positive(rate, "rate", "find_rate")
        last = train(task, records, steps=steps, seed=seed, learning_rate=rate, keep=(), **sgd)[-1]
        tried[rate] = accuracy(task.at(last.state), validation, seed=seed)

    for rate in rates:
        attempt(rate)
    for _ in range(BEYOND):
        best, known = Rates(tried).best, sorted(tried)
        if best == known[0]:
            attempt(_short(best * known[0] / known[1]))
        elif best == known[-1]:
            attempt(_short(best * known[-1] / known[-2]))
        else:
            break
    return Rates(tried)


def _short(rate: float) -> float:
    """Two digits: a rate is a setting, not a measurement."""
    return float(f"{rate:.2g}")
