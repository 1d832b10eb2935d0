"""One trial: an attack on updates of records that are never reported. Each is a cell of the run folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

from leakgauge.adversary import Attack
from leakgauge.attacks.choosing import Chooser
from leakgauge.attacks.staged import members
from leakgauge.audit.attacking import attacked, observed
from leakgauge.audit.cells import FORMAT, threat_of, versions
from leakgauge.audit.scoring import scored
from leakgauge.audit.store import Store, StoreError, canonical
from leakgauge.defenses import Protection
from leakgauge.errors import DataError, DomainError, LeakgaugeError, refuse
from leakgauge.expr import described
from leakgauge.observation import Observation
from leakgauge.seeds import seed_of
from leakgauge.study.attack_texts import attack_of
from leakgauge.study.own_code import source_of
from leakgauge.study.roles import digest
from leakgauge.study.study import Study
from leakgauge.task import Task
from leakgauge.tune.space import WHERE, Space
from leakgauge.types import Progress, Records


@dataclass(frozen=True)
class Trial:
    """A setting that was tried: its score per record by the metric that judges, or why it failed."""

    attack: str
    scores: tuple[float, ...] = ()
    evaluations: int = 0
    fault: str | None = None

    @property
    def score(self) -> float | None:
        """The mean over the records; None if the attack failed."""
        return None if self.fault is not None else round(sum(self.scores) / len(self.scores), 6)

    def as_json(self) -> dict[str, Any]:
        return {
            "attack": self.attack,
            "score": self.score,
            "scores": list(self.scores),
            "evaluations": self.evaluations,
            "fault": self.fault,
        }

    @classmethod
    def of_json(cls, raw: Mapping[str, Any], *, where: str = "trial") -> Trial:
        """Read what a cell keeps. The file may be anybody's."""
        match raw.get("attack"), raw.get("scores"), raw.get("evaluations"), raw.get("fault"):
            case str(text), list(scores), int(spent), str() | None as fault:
                numbers = [isinstance(score, int | float) and isfinite(score) for score in scores]
                if all(numbers) and (fault is not None or numbers):
                    return cls(text, tuple(scores), spent, fault)
        raise StoreError("is no trial of a search", where=where, remedy="delete it; the same command computes it again")


def faults_of(space: Space, task: Task | None = None) -> list[LeakgaugeError]:
    """Why the ends of a space are no attacks that can be searched, on a network if one is given; each reason once."""
    faults: dict[str, LeakgaugeError] = {}
    for text in space.corners():
        try:
            _check(text, task)
        except LeakgaugeError as fault:  # the ends of several ranges may have the same one
            for one in getattr(fault, "problems", (fault,)):
                faults.setdefault(one.what.replace(repr(text), ""), one)
    return list(faults.values())


def _check(text: str, task: Task | None) -> None:
    whole = attack_of(text, WHERE)
    if chooser := next((one for one in members(whole) if isinstance(one, Chooser)), None):
        raise DomainError(  # a trial would run its fixed portfolio, which is another attack
            f"{described(chooser).partition('(')[0]}() chooses its own settings",
            where=WHERE,
            remedy="search another attack: adaptive(steps=300)",
        )
    for attack in members(whole):
        fits = getattr(attack, "fits", None)
        if fits is not None and task is not None:
            fits(task.params)


@dataclass(frozen=True)
class Bench:
    """One defense with the reference updates on which attacks are tried."""

    study: Study
    protection: Protection
    updates: int
    store: Store

    @cached_property
    def private(self) -> Records:
        """Records that are never reported; refused if there are too few."""
        batch = self.study.task.recipe.batch
        pool = self.study.tuning if len(self.study.tuning) >= self.updates * batch else self.study.reference
        if len(pool) < self.updates * batch:
            raise DataError(
                f"{len(pool)} reference records, {self.updates * batch} are needed ({self.updates} updates of a batch "
                f"of {batch})",
                where="tune",
                remedy="give more train records, or fewer --records: reported ones are never used",
            )
        return pool[: self.updates * batch]

    def check(self, space: Space) -> None:
        """Refuse a space whose ends are no attacks, or none on such a network, and too few records."""
        refuse(faults_of(space, self.task))
        len(self.private)

    @cached_property
    def task(self) -> Task:
        return self.study.under(self.protection)

    @cached_property
    def observations(self) -> list[Observation]:
        how = {"seed": seed_of(self.study.seed, 3), "rounds": self.study.rounds}
        return observed(self.task, self.private, self.study.threat, **how)

    @property
    def metric(self) -> str:
        return self.study.metrics.judge.meaning.name

    def params(self, attack: Attack) -> dict[str, Any]:
        return {
            "defense": described(self.protection),
            "attack": described(attack),
            "threat": threat_of(self.study.threat),
            "rounds": self.study.rounds,
            "records": self.updates,
            "seed": self.study.seed,
        }

    @cached_property
    def _content(self) -> dict[str, str]:
        study, private = self.study, self.private
        return {
            "task": study.content,
            "recipe": repr(study.task.recipe),
            "tuning": digest({"x": private.inputs, "y": private.labels}),
            "metrics": repr(study.metrics.all),
            "own code": study.fingerprint(self.protection),
        }

    def identity(self, attack: Attack) -> str:
        """The hash of all that a trial depends on."""
        whole = {
            "format": FORMAT,
            "kind": "trial",
            "params": self.params(attack),
            "content": self._content,
            "source": source_of(members(attack)),
            "versions": [versions(self.protection), versions(attack)],
        }
        return hashlib.sha256(canonical(whole).encode()).hexdigest()[:24]

    def run(self, text: str, progress: Progress | None = None) -> Trial:
        """The trial of an attack: from the store if it was run before, or run and kept."""
        try:
            attack = attack_of(text, WHERE)
        except LeakgaugeError as fault:  # of this setting alone: the ends of the ranges are attacks
            return Trial(text, fault=str(fault))
        identity = self.identity(attack)
        if self.store.done(identity):
            kept = Trial.of_json(self.store.result(identity), where=str(self.store.cell(identity)))
            return Trial(text, kept.scores, kept.evaluations, kept.fault)
        try:
            trial = self._measured(text, attack, progress)
        except LeakgaugeError as fault:  # this setting cannot attack here, for instance since there is no density
            trial = Trial(text, fault=str(fault))
        except Exception as fault:  # anybody's code may raise anything: the other trials go on, this one is not kept
            return Trial(text, fault=f"{type(fault).__name__}: {fault}")
        cell = {"cell": identity, "kind": "trial", "params": self.params(attack), **trial.as_json()}
        self.store.commit(identity, cell, {})
        return trial

    def _measured(self, text: str, attack: Attack, progress: Progress | None) -> Trial:
        study = self.study
        seed = seed_of(study.seed, 4)
        guess, _ = attacked(attack, self.task, self.observations, study.threat, seed=seed, progress=progress)
        by = scored(study, guess, self.private)[0][self.metric]
        return Trial(text, tuple(by), guess.evaluations)


__all__ = ["Bench", "Trial", "faults_of"]
