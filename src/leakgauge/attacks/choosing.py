"""Choosing among a portfolio by successive halving, on records that are never reported.

Every rung runs more of fewer settings. Settings of a rung share the observations inside the batched solver, and a
setting that extends another goes on from where that one ended, so that the choice costs little more than one attack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.attacks.confirming import confirmed
from leakgauge.attacks.portfolio import WEAKER, Portfolio
from leakgauge.attacks.raced import Raced, leading, race
from leakgauge.attacks.staged import Staged, family, posteriors, stage_after
from leakgauge.attacks.trials import Trial, first_of, kinds, last_of, longer, ranked, rounded, then, varied
from leakgauge.errors import LeakgaugeError, brief
from leakgauge.expr import PATH, described, parse
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Progress

Score = Callable[[Reconstruction, Sequence[int]], float]
"""The mean score of a reconstruction of the observations at these places; higher is better."""


LUCK = 0.05
"""By which share of its score a race has to be behind a single setting to lose against it."""
WORTH = 0.005
"""Which share of the score a third of a way to finish has to gain for the rest to be worth it."""


@dataclass(frozen=True)
class Effort:
    """How much is tried, in evaluations of one update.

    ``first`` steps of every first stage on ``look`` updates; then, on ``records`` updates, the best ``keep`` again with
    ``unit`` steps, and the best of ``extend`` families with every extension. What has begun races, going on as the best
    of these did, and ends with a third of every finishing stage; the best one also gets the rest, untried. Where a
    single setting is chosen and settings of other kinds did better on half of the updates, up to ``several`` of them
    meet it again on as many further updates.
    """

    first: int
    unit: int
    look: int
    keep: int
    extend: int
    several: int
    records: int

    @property
    def attacks_worth(self) -> float:
        """What a choice costs, in attacks on one update: forty looks, then stages of one, two, four and six units,
        six to finish, and once more what six have, with a unit for every rival."""
        units = self.records * (self.keep + 2 + 4 * self.extend + 2 * 3 + 6 + 6 + self.several)
        return (40 * self.first * self.look + units * self.unit) / (6 * self.unit)


EFFORTS = {
    "quick": Effort(first=25, unit=50, look=2, keep=5, extend=2, several=2, records=4),
    "standard": Effort(first=30, unit=150, look=2, keep=6, extend=2, several=3, records=4),
    "thorough": Effort(first=150, unit=400, look=4, keep=16, extend=6, several=4, records=12),
}


_REMEDY = "delete it; the same command computes it again"


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
        rungs = ", ".join(
            f"{stage} {score:.3g} ({count} setting{'s' * (count != 1)})" for stage, count, score in self.rungs
        )
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
        firsts = [(None, one) for one in portfolio.firsts(effort.first)]
        looks = varied(self._rung("first look", firsts, effort.look), family)
        again = [(None, longer(first_of(one), effort.unit)) for one in looks[: effort.keep]]
        again += [(None, stage) for stage in portfolio.usual(2 * effort.unit)]
        begun = self._rung("first stage", again, effort.records)
        pairs = [
            (one, stage)
            for one in varied(begun, family)[: effort.extend]
            for stage in portfolio.extensions(last_of(one), effort.unit)
        ]
        trials = ranked([*begun, *self._rung("second stage", pairs, effort.records)])
        whole = self.preferred(self.raced(begun, trials[0]), trials[0])
        last = last_of(whole)
        pairs = [(whole, stage) for stage in portfolio.finishes(last, effort.unit // 3)]
        finished = self._rung("third stage", pairs, effort.records)
        finish = last_of(finished[0])  # which way to finish is seen early; only that one goes on for long
        if finished[0].score > whole.score + WORTH * abs(whole.score):
            rest = longer(finish, 2 * finish.solver.steps)
            whole = replace(finished[0], attack=then(finished[0].attack, rest))
        else:
            whole = ranked([whole, finished[0]])[0]
        count = min(effort.records, len(self.observations))
        if not isinstance(first_of(whole), Raced):
            whole, count = confirmed(self, whole, kinds(trials)[: effort.several])
        assumed = () if portfolio.assumed is None else (portfolio.assumed,)
        return Choice(whole.attack, self.tried, count, self.evaluations, whole.score, tuple(self.rungs), assumed)

    def raced(self, begun: Sequence[Trial], model: Trial) -> Trial:
        """A race of what has begun; a setting that went on shows how, under one of several weights of the prior."""
        last = last_of(model)
        if last == first_of(model):
            last = self.portfolio.extensions(last, self.effort.unit)[WEAKER]
        stages = self.portfolio.reweighed(last)
        begun = sorted(begun, key=lambda trial: first_of(trial) != first_of(model))  # what led so far goes on anyway
        task, some, judge = self.task, self.observations[: self.effort.records], self.portfolio.judge
        keep, guesses = min(self.portfolio.lanes, len(begun)), [trial.guess for trial in begun]
        ends = race(guesses, stages, judge, keep, task, some, seed=self.seed, progress=self.progress)
        firsts = tuple(first_of(trial) for trial in begun)
        if self.portfolio.smooth:  # what goes on for no update here will hardly do so elsewhere; kinks are less regular
            (values,) = posteriors([judge], task, some, guesses)
            places = sorted({place for row in leading(values, keep) for place in row})
            firsts = tuple(firsts[place] for place in places)
        trials = [
            Trial(Raced(firsts, stage, judge, keep), guess, self._scored(guess, range(len(some))))
            for stage, guess in zip(stages, ends, strict=True)
        ]
        self.evaluations += sum(guess.evaluations for guess in ends)
        self.tried += len(trials)
        self.rungs.append(("race", len(trials), ranked(trials)[0].score))
        return ranked(trials)[0]

    def preferred(self, raced: Trial, single: Trial) -> Trial:
        """The race, unless a single setting did clearly better: the best of many on a few updates is partly luck."""
        return single if single.score > raced.score + LUCK * abs(raced.score) else raced

    def _rung(self, name: str, pairs: Sequence[tuple[Trial | None, Adversary]], count: int) -> list[Trial]:
        """Run every stage after the setting that it extends, on the first ``count`` updates; the best first."""
        some = self.observations[:count]
        before = [None if trial is None else trial.guess for trial, _ in pairs]
        guesses = stage_after(
            before, [stage for _, stage in pairs], self.task, some, seed=self.seed, progress=self.progress
        )
        trials = []
        for (trial, stage), guess in zip(pairs, guesses, strict=True):
            attack = Staged((stage,)) if trial is None else then(trial.attack, stage)
            trials.append(Trial(attack, guess, self._scored(guess, range(len(some)))))
            self.evaluations += guess.evaluations - (0 if trial is None else trial.guess.evaluations)
        self.tried += len(trials)
        trials = ranked(trials)
        self.rungs.append((name, len(trials), trials[0].score))
        return trials

    def _scored(self, guess: Reconstruction, places: Sequence[int]) -> float:
        return rounded(self.score(guess, places))


__all__ = ["EFFORTS", "Choice", "Chooser", "Choosing", "Effort", "Score"]
