"""One trial: an attack on updates of records that are never reported. Each is a cell of the run folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leakgauge.adversary import Attack
from leakgauge.attacks.choosing import Chooser
from leakgauge.attacks.staged import members
from leakgauge.audit.attacking import attacked, observed
from leakgauge.audit.cells import FORMAT, threat_of, versions
from leakgauge.audit.scoring import scored
from leakgauge.audit.store import Store, canonical
from leakgauge.defenses import Protection
from leakgauge.errors import DataError, DomainError, LeakgaugeError
from leakgauge.expr import described, parse
from leakgauge.observation import Observation
from leakgauge.seeds import seed_of
from leakgauge.study.roles import digest
from leakgauge.study.study import Study
from leakgauge.task import Task
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

    def check(self, attacks: Sequence[str]) -> None:
        """Refuse expressions that are no attacks, or none on such a network, and too few records."""
        for text in attacks:
            whole = parse(text, "attack", where="space")
            if isinstance(whole, Chooser):  # a trial would run its fixed portfolio, which is another attack
                raise DomainError(
                    f"{text} chooses its own settings",
                    where="space",
                    remedy="search another attack: adaptive(steps=300)",
                )
            for attack in members(whole):
                fits = getattr(attack, "fits", None)
                if fits is not None:
                    fits(self.task.params)
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
        }

    def identity(self, attack: Attack) -> str:
        """The hash of all that a trial depends on."""
        whole = {
            "format": FORMAT,
            "kind": "trial",
            "params": self.params(attack),
            "content": self._content,
            "versions": [versions(self.protection), versions(attack)],
        }
        return hashlib.sha256(canonical(whole).encode()).hexdigest()[:24]

    def run(self, attack: Attack, progress: Progress | None = None) -> Trial:
        """The trial of an attack: from the store if it was run before, or run and kept."""
        identity = self.identity(attack)
        if self.store.done(identity):
            cell = self.store.result(identity)
            return Trial(cell["attack"], tuple(cell["scores"]), cell["evaluations"], cell["fault"])
        try:
            trial = self._measured(attack, progress)
        except LeakgaugeError as fault:  # this setting cannot attack here, for instance since there is no density
            trial = Trial(described(attack), fault=str(fault))
        cell = {"cell": identity, "kind": "trial", "params": self.params(attack), **trial.as_json()}
        self.store.commit(identity, cell, {})
        return trial

    def _measured(self, attack: Attack, progress: Progress | None) -> Trial:
        study = self.study
        seed = seed_of(study.seed, 4)
        guess, _ = attacked(attack, self.task, self.observations, study.threat, seed=seed, progress=progress)
        by = scored(study, guess, self.private)[0][self.metric]
        return Trial(described(attack), tuple(by), guess.evaluations)


__all__ = ["Bench", "Trial"]
