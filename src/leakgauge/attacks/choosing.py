"""Choosing among a portfolio by successive halving, on records that are never reported.

Every rung runs more of fewer settings. Settings of a rung share the observations inside the batched solver, and a
setting that extends another goes on from where that one ended, so that the choice costs little more than one attack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.attacks.confirming import MOST_UNITS, Again, confirmed, tried_again
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.staged import BestOf, Staged, best, family, posteriors, stage_after, steps_of
from leakgauge.attacks.trials import Trial, first_of, kinds, last_of, longer, ranked, rounded, then, varied
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

    ``first`` steps of every first stage on ``look`` updates; then, on ``records`` updates, the best ``keep`` again with
    ``unit`` steps, and the best of ``extend`` families with every extension. Of up to ``several`` settings it is asked
    whether together, the posterior choosing, they do better; what they end with gets a third of every finishing stage,
    and then the rest of the best one. Where settings of other kinds did better on half of the updates, up to
    ``several`` of them meet the choice again on as many further updates. As many others try the updates again on which
    the choice ends below its median.
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
        """What a choice costs, in attacks on one update: forty looks, then stages of one, four and seven units, and
        once more what six have, with a unit for every rival; half of the updates are tried again."""
        units = self.records * (self.keep + 4 * self.extend + 7 + 6 + self.several + (3 + self.several) / 2)
        return (40 * self.first * self.look + units * self.unit) / (6 * self.unit)


EFFORTS = {
    "quick": Effort(first=25, unit=50, look=2, keep=6, extend=2, several=2, records=4),
    "standard": Effort(first=40, unit=150, look=2, keep=8, extend=3, several=3, records=4),
    "thorough": Effort(first=150, unit=400, look=4, keep=16, extend=6, several=4, records=12),
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
        again += [(None, stage) for stage in portfolio.usual(6 * effort.unit)]
        begun = self._rung("first stage", again, effort.records)
        pairs = [
            (one, stage)
            for one in varied(begun, family)[: effort.extend]
            for stage in portfolio.extensions(last_of(one), effort.unit)
        ]
        trials = ranked([*begun, *self._rung("second stage", pairs, effort.records)])
        last, whole = last_of(trials[0]), self.together("together", trials, last_of(trials[0]))
        unfinished = whole
        pairs = [(whole, stage) for stage in portfolio.finishes(last, effort.unit // 3)]
        finished = self._rung("third stage", pairs, effort.records)
        finish = last_of(finished[0])  # which way to finish is seen early; only that one goes on for long
        pairs = [(finished[0], longer(finish, 2 * finish.solver.steps))]
        finished += self._rung("fourth stage", pairs, effort.records)
        whole = self.together("in the end", ranked([*finished, whole, *trials]), last)
        whole, count = confirmed(self, whole, kinds(trials)[: effort.several])
        whole = tried_again(self, whole, Again.of(self, whole, unfinished, begun, trials))
        assumed = () if portfolio.assumed is None else (portfolio.assumed,)
        return Choice(whole.attack, self.tried, count, self.evaluations, whole.score, tuple(self.rungs), assumed)

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

    def together(self, name: str, trials: Sequence[Trial], last: Adversary) -> Trial:
        """The best setting, with those added, one by one, beside which the posterior chooses best.

        Of networks with kinks a setting solves one record and is caught in a minimum for the next, where only a
        stronger prior tells what is seen from what is fitted. Which of the two has happened the posterior shows well,
        under one of several weights of its prior.
        """
        some = self.observations[: self.effort.records]
        whole, members = trials[0], 1
        judges = self.portfolio.judges_after(last)
        every = posteriors(judges, self.task, some, [trial.guess for trial in trials])
        for judge, values in zip(judges, every, strict=True):
            chosen, reached = [0], trials[0]
            for _ in range(self.effort.several - 1):
                wider = [[*chosen, i] for i in range(len(trials)) if i not in chosen]
                tried = [(places, self._picked(places, trials, values, judge)) for places in wider]
                fitting = [one for one in tried if steps_of(one[1].attack) <= MOST_UNITS * self.effort.unit]
                places, trial = max(fitting, key=lambda one: one[1].score, default=(chosen, reached))
                if trial.score <= reached.score + WORTH * abs(reached.score):
                    break
                chosen, reached = places, trial
            if reached.score > whole.score:
                whole, members = reached, len(chosen)
        self.rungs.append((name, members, whole.score))
        return whole

    def judge(self, trials: Sequence[Trial]) -> Adversary:
        """The objective that chooses best among all of these, the best of which comes first."""
        some, judges = self.observations[: self.effort.records], self.portfolio.judges_after(last_of(trials[0]))
        guesses = [trial.guess for trial in trials]
        scores = [
            self._scored(best(guesses, values), range(len(some)))
            for values in posteriors(judges, self.task, some, guesses)
        ]
        return judges[scores.index(max(scores))]

    def _picked(
        self, places: Sequence[int], trials: Sequence[Trial], values: Sequence[Tensor], judge: Adversary
    ) -> Trial:
        """Several settings as one."""
        guess = best([trials[i].guess for i in places], [values[i] for i in places])
        attack = BestOf(tuple(trials[i].attack for i in places), judge)
        return Trial(attack, guess, self._scored(guess, range(len(guess.inputs))))

    def _scored(self, guess: Reconstruction, places: Sequence[int]) -> float:
        return rounded(self.score(guess, places))


__all__ = ["EFFORTS", "Choice", "Chooser", "Choosing", "Effort", "Score"]
