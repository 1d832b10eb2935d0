"""Choosing among a portfolio by successive halving, on records that are never reported.

Every rung runs more of fewer settings. Settings of a rung share the observations inside the batched solver, and a
setting that extends another goes on from where that one ended, so that the choice costs little more than one attack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.staged import BestOf, Staged, best, posterior, stage_after
from leakgauge.errors import LeakgaugeError, brief
from leakgauge.expr import PATH, described, parse
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Progress

Score = Callable[[Reconstruction, Sequence[int]], float]
"""The mean score of a reconstruction of the observations at these places; higher is better."""


@dataclass(frozen=True)
class Effort:
    """How much is tried, in evaluations of one update.

    ``first`` steps of every first stage on ``look`` records; the best ``keep`` again with ``unit`` steps; the best
    ``extend`` of them with every extension; the best ``finish`` with every finishing stage; the best ``finalists`` on
    ``records`` records in all.
    """

    first: int
    unit: int
    look: int
    keep: int
    extend: int
    finish: int
    finalists: int
    records: int


EFFORTS = {
    "quick": Effort(first=25, unit=50, look=2, keep=6, extend=2, finish=1, finalists=2, records=4),
    "standard": Effort(first=60, unit=150, look=2, keep=10, extend=3, finish=1, finalists=2, records=4),
    "thorough": Effort(first=150, unit=400, look=4, keep=16, extend=5, finish=3, finalists=3, records=12),
}


_REMEDY = "delete it; the same command computes it again"
WORTH = 0.01
"""Several attacks cost several times as much: their gain must be at least this share of the score of the best."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and from how much: settings ``tried`` on ``records`` other records, with ``score`` there.

    ``rungs`` says for every rung how many settings ran and what the best of them reached.
    """

    attack: Attack
    tried: int = 0
    records: int = 0
    evaluations: int = 0
    score: float = 0.0
    rungs: tuple[tuple[str, int, float], ...] = ()
    assumed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, the attack by its expression: what a cell keeps of a choice."""
        numbers = {name: getattr(self, name) for name in ("tried", "records", "evaluations", "score")}
        rungs, assumed = [list(rung) for rung in self.rungs], list(self.assumed)
        return {"chosen": described(self.attack), **numbers, "rungs": rungs, "assumed": assumed}

    @classmethod
    def of_json(cls, raw: Mapping[str, Any], *, where: str = "choice", own: str = "") -> Choice:
        """Read what a cell keeps. The file may be anybody's: of the user's code only what ``own``, the texts of the
        study, names is imported."""
        try:
            numbers = {name: raw[name] for name in ("tried", "records", "evaluations", "score")}
            rungs = tuple((str(name), int(count), float(score)) for name, count, score in raw["rungs"])
            text, assumed = str(raw["chosen"]), tuple(map(str, raw["assumed"]))
            if not all(isinstance(number, int | float) for number in numbers.values()):
                raise TypeError("a number is none")
        except (LookupError, TypeError, ValueError) as fault:
            raise LeakgaugeError(
                f"is no choice of an attack ({type(fault).__name__}: {fault})", where=where, remedy=_REMEDY
            ) from None
        if foreign := set(PATH.findall(text)) - set(PATH.findall(own)):
            raise LeakgaugeError(
                f"chooses code that the study does not name: {brief(', '.join(sorted(foreign)))}",
                where=where,
                remedy=_REMEDY,
            )
        attack = parse(text, "attack", where=where)
        return cls(attack, **numbers, rungs=rungs, assumed=assumed)

    def sentences(self, chooser: Chooser) -> list[str]:
        """What was done, for ledgers and reports."""
        name = f"{described(chooser)}, version {chooser.version}"
        if not self.tried:
            return [f"{name}: {sentence}" for sentence in self.assumed]
        rungs = ", ".join(f"{stage} {score:.3g} ({count} settings)" for stage, count, score in self.rungs)
        return [
            f"{name}: the attack was tuned; {self.tried} settings were tried on {self.records} other updates, in "
            f"{self.evaluations:,} evaluations; best score by stage: {rungs}",
            f"{name}: chose {described(self.attack)}",
            *(f"{name}: {sentence}" for sentence in self.assumed),
        ]


@runtime_checkable
class Chooser(Protocol):
    """An attack that first chooses its settings, on ``reference`` updates of records that are never reported."""

    version: ClassVar[int]

    @property
    def reference(self) -> int: ...

    @property
    def attacks_worth(self) -> float:
        """What a choice costs, in attacks on one update."""

    def choose(
        self,
        task: Task,
        observations: Sequence[Observation],
        score: Score,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Choice: ...


@dataclass(frozen=True)
class _Trial:
    """A setting with what it made of the first few records."""

    attack: Staged
    guess: Reconstruction
    score: float


@dataclass
class Choosing:
    """One choice in the making."""

    portfolio: Portfolio
    effort: Effort
    task: Task
    observations: Sequence[Observation]
    score: Score
    seed: int = 0
    progress: Progress | None = None
    tried: int = 0
    evaluations: int = 0
    rungs: list[tuple[str, int, float]] = field(default_factory=list)

    def choose(self) -> Choice:
        effort, portfolio = self.effort, self.portfolio
        looks = self._rung("first look", [(None, one) for one in portfolio.firsts(effort.first)])
        again = [(None, _longer(one.attack.stages[0], effort.unit)) for one in looks[: effort.keep]]
        firsts = self._rung("first stage", again)
        pairs = [(one, ext) for one in firsts[: effort.extend] for ext in portfolio.extensions(_last(one), effort.unit)]
        trials = _ranked([*firsts, *self._rung("second stage", pairs)])
        pairs = [(one, end) for one in trials[: effort.finish] for end in portfolio.finishes(_last(one), effort.unit)]
        trials = _ranked([*trials, *self._rung("third stage", pairs)])
        return self._final(trials[: effort.finalists])

    def _rung(self, name: str, pairs: Sequence[tuple[_Trial | None, Adversary]]) -> list[_Trial]:
        """Run every stage after the setting that it extends; the best first."""
        few = self.observations[: self.effort.look]
        before = [None if trial is None else trial.guess for trial, _ in pairs]
        guesses = stage_after(
            before, [stage for _, stage in pairs], self.task, few, seed=self.seed, progress=self.progress
        )
        trials = []
        for (trial, stage), guess in zip(pairs, guesses, strict=True):
            attack = Staged((stage,)) if trial is None else trial.attack.then(stage)
            trials.append(_Trial(attack, guess, self._scored(guess, range(len(few)))))
            self.evaluations += guess.evaluations - (0 if trial is None else trial.guess.evaluations)
        return self._noted(name, _ranked(trials))

    def _noted(self, name: str, trials: list[_Trial]) -> list[_Trial]:
        self.tried += len(trials)
        self.rungs.append((name, len(trials), trials[0].score))
        return trials

    def _final(self, trials: Sequence[_Trial]) -> Choice:
        """The finalists on more records; then whether the posterior does better at choosing among them, per record."""
        few, every = self.effort.look, self.observations[: self.effort.records]
        rest, count = every[few:], len(every)
        whole: list[tuple[float, Staged, list[Reconstruction]]] = []
        for trial in trials:
            guesses = [trial.guess]
            if rest:
                guesses.append(trial.attack(self.task, rest, seed=self.seed, progress=self.progress))
                self.evaluations += guesses[-1].evaluations
            whole.append((self._over(guesses, few, count), trial.attack, guesses))
        whole.sort(key=lambda one: -one[0])
        score, attack, _ = whole[0]
        chosen: Attack = attack
        if len(whole) > 1:
            judge = replace(attack.stages[-1], restarts=1)
            parts = range(len(whole[0][2]))
            picked = self._over([self._picked(judge, [one[2][i] for one in whole], i) for i in parts], few, count)
            if picked > score + WORTH * abs(score):
                score, chosen = picked, BestOf(tuple(one for _, one, _ in whole), judge)
        self.rungs.append(("final", len(whole), score))
        assumed = () if self.portfolio.assumed is None else (self.portfolio.assumed,)
        return Choice(chosen, self.tried, count, self.evaluations, score, tuple(self.rungs), assumed)

    def _picked(self, judge: Adversary, guesses: Sequence[Reconstruction], part: int) -> Reconstruction:
        few = self.effort.look
        seen = self.observations[:few] if part == 0 else self.observations[few : self.effort.records]
        return best(guesses, [posterior(judge, self.task, seen, guess) for guess in guesses])

    def _over(self, guesses: Sequence[Reconstruction], few: int, count: int) -> float:
        places = [range(min(few, count)), range(few, count)]
        sums = [self._scored(guess, some) * len(some) for guess, some in zip(guesses, places, strict=False)]
        return round(sum(sums) / count, 6)

    def _scored(self, guess: Reconstruction, places: Sequence[int]) -> float:
        score = self.score(guess, places)
        return round(score, 6) if torch.isfinite(torch.tensor(score)) else -1e9


def _ranked(trials: Sequence[_Trial]) -> list[_Trial]:
    """The best first; of equal ones the one that was tried first."""
    return sorted(trials, key=lambda trial: -trial.score)


def _last(trial: _Trial) -> Adversary:
    return trial.attack.stages[-1]


def _longer(stage: Adversary, steps: int) -> Adversary:
    solver: Any = stage.solver
    return replace(stage, solver=replace(solver, steps=steps))


__all__ = ["EFFORTS", "Choice", "Chooser", "Choosing", "Effort", "Score"]
