"""A race: many attacks begin, and for every update the posterior says which of them go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.attacks.calling import CheckedAttack, Options, within
from leakgauge.attacks.staged import BestOf, best, picked, posteriors, stage_after, steps_of
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Threat, Treatment


@register("attack", "raced")
@dataclass(frozen=True, repr=False)
class Raced(CheckedAttack):
    """Several adversaries begin; for each update the first one and those whose guesses have the highest log posterior
    under ``judge``, ``keep`` in all, go on with ``stage``; of these the one is taken that ends likeliest under its own.

    On networks with kinks a start that solves one record is caught in a minimum for the next. The posterior shows early
    which has happened, so that work goes to the starts that are worth it; the truth is not needed.
    """

    models_defense: ClassVar[Literal["any"]] = "any"

    firsts: tuple[Adversary, ...]
    stage: Adversary
    judge: Adversary
    keep: int = 2

    def __post_init__(self) -> None:
        firsts = isinstance(self.firsts, tuple | list) and self.firsts
        if not firsts or not all(isinstance(one, Adversary) for one in (*self.firsts, self.stage, self.judge)):
            what = "firsts must be adversaries, stage and judge an adversary"
            raise DomainError(what, where="raced", remedy="give raced(firsts=(adversary(),), stage=…, judge=…)")
        guards.count(self.keep, "keep", "raced")

    @property
    def steps(self) -> int:
        return sum(map(steps_of, self.firsts)) + self._kept * steps_of(self.stage)

    @property
    def last(self) -> Adversary:
        return self.stage

    @property
    def _kept(self) -> int:
        return min(self.keep, len(self.firsts))

    @property
    def members(self) -> tuple[Attack, ...]:
        return (*self.firsts, self.stage, self.judge)

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        return BestOf(tuple(self.firsts), self.judge).treatments(task, threat)

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        steps = [max(map(steps_of, self.firsts)), steps_of(self.stage)]
        own = within(options, 0, sum(steps))
        guesses = stage_after([None] * len(self.firsts), self.firsts, task, observations, **own)
        own = within(options, steps[0], sum(steps))
        (guess,) = race(guesses, [self.stage], self.judge, self._kept, task, observations, **own)
        return replace(guess, evaluations=guess.evaluations + sum(one.evaluations for one in guesses))


def race(
    guesses: Sequence[Reconstruction],
    stages: Sequence[Adversary],
    judge: Adversary,
    keep: int,
    task: Task,
    observations: Sequence[Observation],
    **options: Any,
) -> list[Reconstruction]:
    """What every stage makes of the first and the likeliest guesses of each update: the end that is likeliest under
    the stage's own posterior. Its evaluations are those of the stage."""
    (values,) = posteriors([judge], task, observations, guesses)
    ahead = [replace(picked(guesses, values, places), evaluations=0) for places in leading(values, keep)]
    lanes = [(one, stage) for stage in stages for one in ahead]
    ends = stage_after([one for one, _ in lanes], [stage for _, stage in lanes], task, observations, **options)
    values = [end.log_posterior.nan_to_num(nan=-torch.inf) for end in ends]
    return [best(ends[i : i + keep], values[i : i + keep]) for i in range(0, len(lanes), keep)]


def leading(values: Sequence[Tensor], keep: int) -> list[list[int]]:
    """Which guesses go on, by rank and observation: the first, then those of the highest value."""
    merit = torch.stack([torch.full_like(values[0], torch.inf), *values[1:]])
    order: list[list[int]] = merit.argsort(dim=0, descending=True, stable=True)[:keep].tolist()
    return order


raced = Raced
__all__ = ["Raced", "leading", "race", "raced"]
