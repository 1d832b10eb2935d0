"""Settings that were tried: what each made of the first few records, and how they are ranked and extended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.attacks.staged import Staged


@dataclass(frozen=True)
class Trial:
    """A setting with what it made of the first few records."""

    attack: Attack
    guess: Reconstruction
    score: float


def rounded(score: float) -> float:
    """A score as it is compared and kept; one that is no number is worse than any."""
    return round(score, 6) if isfinite(score) else -1e9


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The best first; of equal ones the one that was tried first."""
    return sorted(trials, key=lambda trial: -trial.score)


def varied(trials: Sequence[Trial], kind: Callable[[Adversary], str]) -> list[Trial]:
    """The best of every kind of first stage, the best first; then the others: some begin slowly and end well."""
    ahead, others, kinds = list[Trial](), list[Trial](), set[str]()
    for trial in ranked(trials):
        own = kind(first_of(trial))
        (others if own in kinds else ahead).append(trial)
        kinds.add(own)
    return [*ahead, *others]


def kinds(trials: Sequence[Trial]) -> list[Trial]:
    """The best of every likelihood and start of a first stage, the best first."""
    best: dict[str, Trial] = {}
    for trial in ranked(trials):
        first = first_of(trial)
        best.setdefault(f"{first.likelihood!r} {first.start}", trial)
    return list(best.values())


def then(attack: Attack, stage: Adversary) -> Staged:
    return attack.then(stage) if isinstance(attack, Staged) else Staged((attack, stage))


def first_of(trial: Trial) -> Any:
    return trial.attack.stages[0] if isinstance(trial.attack, Staged) else trial.attack


def last_of(trial: Trial) -> Adversary:
    last: Any = trial.attack
    while not isinstance(last, Adversary):
        last = last.last
    return last


def longer(stage: Adversary, steps: int) -> Adversary:
    solver: Any = stage.solver
    return replace(stage, solver=replace(solver, steps=steps))


__all__ = ["Trial", "first_of", "kinds", "last_of", "longer", "ranked", "rounded", "then", "varied"]
