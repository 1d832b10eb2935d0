"""An attack that tries again where it got stuck: work goes to the updates that need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.adversary.joining import joined
from leakgauge.attacks.calling import CheckedAttack, Options, within
from leakgauge.attacks.staged import BestOf, best, posterior, steps_of
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Threat, Treatment


@register("attack", "retried")
@dataclass(frozen=True, repr=False)
class Retried(CheckedAttack):
    """An attack; and ``again``, another one, for every update whose log posterior under ``judge`` ends ``below``.

    Of the two guesses the one with the higher log posterior is taken; the truth is not needed. The threshold is a
    number, not a rank among the updates of a call: what becomes of one update does not depend on the others.
    """

    models_defense: ClassVar[Literal["any"]] = "any"

    attack: Attack
    again: Attack
    judge: Adversary
    below: float

    def __post_init__(self) -> None:
        if not callable(self.attack) or not callable(self.again) or not isinstance(self.judge, Adversary):
            what = "attack and again must be attacks, judge an adversary"
            raise DomainError(what, where="retried", remedy="give retried(attack=…, again=…, judge=…, below=-0.01)")

    @property
    def steps(self) -> int:
        return steps_of(self.attack) + steps_of(self.again)

    @property
    def members(self) -> tuple[Attack, ...]:
        return (self.attack, self.again, self.judge)

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        return BestOf((self.attack, self.again), self.judge).treatments(task, threat)

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        guess = self.attack(task, observations, **within(options, 0, self.steps))
        guess = replace(guess, log_posterior=posterior(self.judge, task, observations, guess))
        stuck = places_below(guess.log_posterior, self.below)
        if not stuck:
            return guess
        some = [observations[place] for place in stuck]
        second = self.again(task, some, **within(options, steps_of(self.attack), self.steps))
        return with_better(guess, second, stuck, posterior(self.judge, task, some, second))


def places_below(values: Tensor, below: float) -> list[int]:
    return [place for place, value in enumerate(values.tolist()) if value < below]


def with_better(guess: Reconstruction, second: Reconstruction, places: Sequence[int], values: Tensor) -> Reconstruction:
    """A guess, with a second one of the updates at ``places`` where its values are above its log posterior."""
    first = joined([guess], places)
    better = best([first, second], [first.log_posterior, values])
    order = list(range(len(guess.inputs)))
    for number, place in enumerate(places):
        order[place] = len(guess.inputs) + number
    return replace(joined([guess, better], order), evaluations=guess.evaluations + second.evaluations)


retried = Retried
__all__ = ["Retried", "places_below", "retried", "with_better"]
