"""The plan: the cells of an audit, each with an identity that says all it depends on.

A DAG: training → checkpoint, tuning → attack. A cell's id is the hash of its kind, its resolved parameters, its
parents, the contents it uses and the versions of its parts. Chunks of updates are fixed here, so that the result does
not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from leakgauge import parse
from leakgauge.audit.prepare import Prepared, digest
from leakgauge.audit.store import canonical
from leakgauge.defenses import protection
from leakgauge.expr import Part
from leakgauge.study.clients import CHUNK
from leakgauge.study.spec import Spec

ARMS = ("real", "another", "noise")
IDENTITY = "identity()"
FORMAT = 3
"""Of what cells say: changes when a result needs more of them than older ones said."""
Kind = Literal["train", "tune", "attack"]


@dataclass(frozen=True)
class Cell:
    """A unit of work.

    train   a training of the model, with a defense; it leaves checkpoints and their accuracy
    tune    several settings of an adversary against a defense, on reference records
    attack  one adversary against one defense on a chunk of updates, in one arm
    """

    id: str
    kind: Kind
    params: dict[str, Any]
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All cells, parents first, in the order in which they are worth doing."""

    cells: tuple[Cell, ...]

    def of(self, **wanted: Any) -> list[Cell]:
        """The cells whose parameters agree with ``wanted``, in the order of the records."""
        return [c for c in self.cells if all(c.params.get(k) == v for k, v in wanted.items())]


def plan(spec: Spec, prepared: Prepared, *, ablate: bool = False) -> Plan:
    """Every checkpoint × defense × adversary × arm × chunk.

    The update without a defense is the positive control of every defense, and is attacked in the same arms. ``ablate``
    attacks the real update again without each grant in turn.
    """
    return _Planning(spec, prepared, ablate).plan()


def trainings(spec: Spec) -> dict[str, str]:
    """Defense → the defense its model was trained with: none, its own if asked for, or if it changes the model."""
    every = (*spec.defenses.values(), IDENTITY)
    return {text: text if spec.checkpoints.defended or _own_model(text) else IDENTITY for text in every}


def seeds(spec: Spec) -> list[int]:
    """The seeds of the trainings of one defense; the first is attacked."""
    return [spec.seed + i for i in range(spec.checkpoints.seeds)]


def controls(spec: Spec) -> dict[str, str]:
    """Defense → the defense that the model of its positive control was trained with: the same, where it fits."""
    return {text: IDENTITY if _own_model(text) else trained for text, trained in trainings(spec).items()}


def comparisons(spec: Spec) -> int:
    """The p-values of an audit: one per checkpoint and defense, and another where records are encoded."""
    each = sum(1 + bool(protection(text).input) for text in spec.defenses.values())
    return each * len(set(spec.checkpoints.train_steps))


def _own_model(text: str) -> bool:
    return bool(protection(text).model)


def threats(spec: Spec) -> dict[str, dict[str, Any]]:
    """Grant → the threat without it; what is not granted cannot be taken away."""
    given = spec.threat.model_dump(mode="json")
    without: dict[str, dict[str, Any]] = {}
    if given["labels"] == "known":
        without["labels"] = {**given, "labels": "inferred"}
    if given["learning_rate"] == "known" and rate_matters(spec):
        without["learning_rate"] = {**given, "learning_rate": "unknown"}
    for name in given["grants"]:
        without[name] = {**given, "grants": [g for g in given["grants"] if g != name]}
    return without


def rate_matters(spec: Spec) -> bool:
    """Whether what is shared depends on the learning rate, in a way that hiding it makes sense: one step of it."""
    recipe = spec.task.recipe
    return recipe.shares == "change" and recipe.local_steps == 1 and not recipe.momentum and not recipe.weight_decay


class _Planning:
    def __init__(self, spec: Spec, prepared: Prepared, ablate: bool) -> None:
        self.spec, self.ablate = spec, ablate
        self.cells: dict[str, Cell] = {}
        self.content = {"task": prepared.content, "recipe": repr(prepared.task.recipe)}
        for role, records in (("records", prepared.records), ("others", prepared.others), ("tuning", prepared.tuning)):
            self.content[role] = digest({"x": records.inputs, "y": records.labels})
        self.train = self.content | {"train": digest({"x": prepared.train.inputs, "y": prepared.train.labels})}

    def plan(self) -> Plan:
        for step in dict.fromkeys(self.spec.checkpoints.train_steps):
            for text in dict.fromkeys((*self.spec.defenses.values(), IDENTITY)):
                self._defense(step, text, trainings(self.spec)[text])
                self._defense(step, IDENTITY, controls(self.spec)[text])
        order = {"train": 0, "tune": 1, "attack": 2}
        return Plan(tuple(sorted(self.cells.values(), key=lambda cell: order[cell.kind])))

    def _defense(self, step: int, defense: str, trained: str) -> None:
        parents = (self._training(trained),) if step else ()
        where = {"step": step, "defense": shown(defense), "trained": shown(trained) if step else None}
        for name in self.spec.adversaries:
            settings = [shown(text, "attack") for text in self.spec.settings(name)]
            tuned = (self._tuning(where, settings, parents),) if len(settings) > 1 else ()
            given = {**where, "adversary": settings[0] if len(settings) == 1 else settings}
            threat = self.spec.threat.model_dump(mode="json")
            for arm in ARMS:
                self._chunks({**given, "arm": arm, "threat": threat}, parents + tuned)
            for grant, less in threats(self.spec).items() if self.ablate else ():
                self._chunks({**given, "arm": "real", "threat": less, "without": grant}, parents + tuned)

    def _chunks(self, given: dict[str, Any], parents: tuple[str, ...]) -> None:
        for start in range(0, self.spec.task.records, CHUNK):
            stop = min(start + CHUNK, self.spec.task.records)
            self._add("attack", {**given, "records": [start, stop], "seed": self.spec.seed}, self.content, parents)

    def _tuning(self, where: dict[str, Any], settings: list[str], parents: tuple[str, ...]) -> str:
        threat = self.spec.threat.model_dump(mode="json")
        params = {**where, "settings": settings, "threat": threat, "seed": self.spec.seed}
        return self._add("tune", params, self.content, parents)

    def _training(self, defense: str) -> str:
        """The training that is attacked; the others of ``seeds`` only say how accurate its model is."""
        given = self.spec.checkpoints.model_dump(mode="json", exclude={"defended", "seeds"})
        params = {"defense": shown(defense), **given}
        first, *_ = [self._add("train", {**params, "seed": seed}, self.train, ()) for seed in seeds(self.spec)]
        return first

    def _add(self, kind: Kind, params: dict[str, Any], content: dict[str, str], parents: tuple[str, ...]) -> str:
        used = [versions(parse(text)) for text in _texts(params)]
        identity = {
            "format": FORMAT,
            "kind": kind,
            "params": params,
            "content": content,
            "parents": parents,
            "versions": used,
        }
        key = hashlib.sha256(canonical(identity).encode()).hexdigest()[:24]
        self.cells[key] = Cell(key, kind, params, parents)
        return key


@cache
def shown(text: str, kind: str = "defense") -> str:
    """An expression in its one form."""
    return repr(parse(text, kind))


def _texts(params: dict[str, Any]) -> Iterable[str]:
    for key in ("defense", "trained", "adversary", "settings"):
        value = params.get(key)
        yield from [value] if isinstance(value, str) else value or []


def versions(part: object) -> list[str]:
    """``name@version`` of a part and everything inside it."""
    found: list[str] = []
    if isinstance(part, Part):
        found.append(f"{type(part).__name__}@{type(part).version}")
        for value in vars(part).values():
            found += versions(value)
    elif isinstance(part, tuple | list):
        for value in part:
            found += versions(value)
    return found
