"""The plan: a DAG of cells, training → checkpoint, tuning → attack.

How many updates are attacked together is fixed here, so that the result does not depend on the number of workers. Who
is a client is the study's to say; where a defense mixes a client's records, a cell holds whole clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from leakgauge.adversary import Attack
from leakgauge.audit.cells import ARMS, Arm, AttackCell, C, Cell, TrainCell, TuneCell, identified, is_tuned, text_of
from leakgauge.client import LABELS, LEARNING_RATE
from leakgauge.defenses import Protection
from leakgauge.study.clients import clients
from leakgauge.study.own_code import source_of
from leakgauge.study.roles import digest
from leakgauge.study.study import Study
from leakgauge.types import Records, Threat, matching

CHUNK = 10
"""Updates attacked together in one cell: enough for the batched solver, few enough to lose little."""
IDENTITY = Protection()


@dataclass(frozen=True)
class Plan:
    """All cells, parents first, in the order in which they are worth doing."""

    cells: tuple[Cell, ...]

    def of(self, **wanted: Any) -> list[Cell]:
        """The cells whose parameters agree with ``wanted``, in the order of the records; parts may be values."""
        texts = {name: text_of(value) for name, value in wanted.items()}
        question = repr(sorted(texts.items()))
        if question not in self._answers:
            fits = (cell for cell, params in self._params if all(params.get(k) == v for k, v in texts.items()))
            self._answers[question] = tuple(fits)
        return list(self._answers[question])

    @cached_property
    def _answers(self) -> dict[str, tuple[Cell, ...]]:
        """What was asked before: the judge asks the same of every record."""
        return {}

    @cached_property
    def _params(self) -> list[tuple[Cell, dict[str, Any]]]:
        return [(cell, cell.params) for cell in self.cells]


def plan(study: Study, *, ablate: bool = False, secret: str = "") -> Plan:
    """Every checkpoint × defense × adversary × arm × chunk.

    The update without a defense is the positive control of every defense, and is attacked in the same arms. ``ablate``
    attacks the real update again without each grant in turn. With a ``secret`` only who has it can compute the ids of
    the cells, which otherwise confirm a guess at the records.
    """
    return _Planning(study, ablate, secret).plan()


def trained_with(study: Study, defense: Protection) -> Protection:
    """The defense that a model was trained with: none, its own if asked for, or if it changes the model."""
    return defense if study.checkpoints.defended or defense.model else IDENTITY


def control_trained_with(study: Study, defense: Protection) -> Protection:
    """The defense that the model of its positive control was trained with: the same, where it fits."""
    return IDENTITY if defense.model else trained_with(study, defense)


def seeds(study: Study) -> list[int]:
    """The seeds of the trainings of one defense; the first is attacked."""
    return [study.seed + i for i in range(study.checkpoints.seeds)]


def steps(study: Study) -> list[int]:
    """The steps of training that are audited, each once."""
    return list(dict.fromkeys(study.checkpoints.train_steps))


def comparisons(study: Study) -> int:
    """The p-values of an audit: one per checkpoint and defense, and another where records are encoded."""
    return sum(1 + bool(defense.input) for defense in study.defenses.values()) * len(steps(study))


def threats(study: Study) -> dict[str, Threat]:
    """Grant → the threat without it; what is not granted cannot be taken away."""
    threat, without = study.threat, dict[str, Threat]()
    recipe = {"labels": LABELS, "learning_rate": LEARNING_RATE}
    for name, address in recipe.items():
        if address in study.task.nuisances and threat.knows(address):
            without[name] = threat.without(address)
    for name in study.spec.threat.grants:
        if not any(matching(name, [address]) for address in recipe.values()):
            without[name] = replace(threat, grants=threat.grants - {name})
    return without


def chunks(study: Study, defense: Protection) -> list[tuple[tuple[int, int], ...]]:
    """The clients of each cell, as ranges of updates.

    Without an input stage nobody has to stay together, and cells are about equally large: none holds a single update
    among many. With one, a cell holds as many whole clients as fit, at least one, since what a client mixed can only be
    undone together.
    """
    if not defense.input:
        parts = -(-study.updates // CHUNK)
        edges = [study.updates * part // parts for part in range(parts + 1)]
        return [((start, stop),) for start, stop in pairwise(edges)]
    cells: list[tuple[tuple[int, int], ...]] = []
    for client in clients(study.spec):
        whole = (client.start, client.stop)
        if cells and client.stop - cells[-1][0][0] <= CHUNK:
            cells[-1] = (*cells[-1], whole)
        else:
            cells.append((whole,))
    return cells


class _Planning:
    def __init__(self, study: Study, ablate: bool, secret: str) -> None:
        self.study, self.ablate = study, ablate
        self.secret = {"secret": secret} if secret else {}
        self.cells: dict[str, Cell] = {}
        self.content = {"task": study.content, "recipe": repr(study.task.recipe), **self.secret}
        for role, records in (("records", study.records), ("others", study.others), ("tuning", study.tuning)):
            self.content[role] = _hash(records)
        self.scored = self.content | {"metrics": repr(study.metrics.all), "peers": _hash(study.peers)}
        # no reported record has a part in a choice: the same one serves whatever is reported
        self.chosen = {role: self.scored[role] for role in ("task", "recipe", "tuning", "metrics")} | self.secret

    @cached_property
    def train(self) -> dict[str, str]:
        return self.content | {"train": _hash(self.study.train)}

    def plan(self) -> Plan:
        study = self.study
        defenses = {repr(defense): defense for defense in (*study.defenses.values(), IDENTITY)}
        for step in steps(study):
            for defense in defenses.values():
                self._defense(step, defense, trained_with(study, defense))
                self._defense(step, IDENTITY, control_trained_with(study, defense))
        order = {"train": 0, "tune": 1, "attack": 2}
        return Plan(tuple(sorted(self.cells.values(), key=lambda cell: order[cell.kind])))

    def _defense(self, step: int, defense: Protection, trained: Protection) -> None:
        model = trained if step else None
        parents = (self._training(trained),) if step else ()
        for settings in self.study.adversaries.values():
            tuned = self._tuning(step, defense, model, settings, self.study.threat, parents)
            for arm in ARMS:
                self._attacks(step, defense, model, settings, arm, self.study.threat, parents + tuned)
            for grant, less in threats(self.study).items() if self.ablate else ():
                # whoever lacks a grant lacks it while choosing, too
                tuned = self._tuning(step, defense, model, settings, less, parents)
                self._attacks(step, defense, model, settings, "real", less, parents + tuned, without=grant)

    def _attacks(
        self,
        step: int,
        defense: Protection,
        trained: Protection | None,
        settings: tuple[Attack, ...],
        arm: Arm,
        threat: Threat,
        parents: tuple[str, ...],
        *,
        without: str | None = None,
    ) -> None:
        rounds, seed = self.study.rounds, self.study.seed
        for whole in chunks(self.study, defense):
            cell = AttackCell(
                step, defense, trained, settings, arm, threat, rounds, whole, seed, without=without, parents=parents
            )
            self._add(cell, self.scored)

    def _tuning(
        self,
        step: int,
        defense: Protection,
        trained: Protection | None,
        settings: tuple[Attack, ...],
        threat: Threat,
        parents: tuple[str, ...],
    ) -> tuple[str, ...]:
        """The choice under a threat, where something is chosen."""
        if not is_tuned(settings):
            return ()
        rounds, seed = self.study.rounds, self.study.seed
        return (self._add(TuneCell(step, defense, trained, settings, threat, rounds, seed, parents), self.chosen),)

    def _training(self, defense: Protection) -> str:
        """The training that is attacked; the others of ``seeds`` only say how accurate its model is."""
        schedule = self.study.checkpoints
        first, *_ = [self._add(TrainCell(defense, schedule, seed), self.train) for seed in seeds(self.study)]
        return first

    def _add(self, cell: C, content: dict[str, str]) -> str:
        defenses = [getattr(cell, name, None) for name in ("defense", "trained")]
        own = [self.study.fingerprint(defense) for defense in defenses if defense is not None]
        own.append(source_of(getattr(cell, "settings", ())))
        named = identified(cell, content | ({"own code": " ".join(own)} if any(own) else {}))
        self.cells[named.id] = named
        return named.id


def _hash(records: Records) -> str:
    return digest({"x": records.inputs, "y": records.labels})
