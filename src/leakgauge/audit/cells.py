"""The cells of an audit: units of work that carry values, each with an identity that says all it depends on."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor

from leakgauge.adversary import Attack
from leakgauge.attacks.choosing import Chooser
from leakgauge.audit.store import canonical
from leakgauge.defenses import Protection
from leakgauge.expr import Part, described
from leakgauge.study.sections import Checkpoints
from leakgauge.types import Threat

FORMAT = 6
"""Cell format version; bump it when a result needs fields that older cells lack, or what an arm observes changes."""
Arm = Literal["real", "another", "noise"]
ARMS: tuple[Arm, ...] = ("real", "another", "noise")
JSON = dict[str, Any]


@dataclass(frozen=True)
class TrainCell:
    """A training of the model with a defense; it leaves checkpoints and their accuracy."""

    kind: ClassVar[Literal["train"]] = "train"

    defense: Protection
    schedule: Checkpoints
    seed: int
    parents: tuple[str, ...] = ()
    id: str = field(default="", compare=False)

    @property
    def params(self) -> JSON:
        """Its values as plain JSON: what ``plan.json`` says, and what its identity hashes."""
        numbers = self.schedule.model_dump(mode="json", exclude={"defended", "seeds"})
        return {"defense": text_of(self.defense), **numbers, "seed": self.seed}


@dataclass(frozen=True)
class TuneCell:
    """Several settings of an adversary against a defense, on reference records: the best is chosen.

    A single one that is a :class:`~leakgauge.attacks.choosing.Chooser` chooses among its own.
    """

    kind: ClassVar[Literal["tune"]] = "tune"

    step: int
    defense: Protection
    trained: Protection | None
    """The defense that the checkpoint was trained with; None at step 0."""
    settings: tuple[Attack, ...]
    threat: Threat
    rounds: int
    seed: int
    parents: tuple[str, ...] = ()
    id: str = field(default="", compare=False)

    @property
    def params(self) -> JSON:
        return {
            "step": self.step,
            "defense": text_of(self.defense),
            "trained": text_of(self.trained),
            "settings": [text_of(attack) for attack in self.settings],
            "threat": threat_of(self.threat),
            "rounds": self.rounds,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class AttackCell:
    """One adversary against one defense on a range of updates, in one arm.

    What the tuning chose attacks, one of several ``settings`` or what a chooser chose; it is the last parent.
    ``clients`` are the ranges of updates that belong together under a defense that mixes a client's records; else one
    range, which says nothing.
    """

    kind: ClassVar[Literal["attack"]] = "attack"

    step: int
    defense: Protection
    trained: Protection | None
    settings: tuple[Attack, ...]
    arm: Arm
    threat: Threat
    rounds: int
    clients: tuple[tuple[int, int], ...]
    seed: int
    without: str | None = None
    """The grant that an ablation takes away."""
    parents: tuple[str, ...] = ()
    id: str = field(default="", compare=False)

    @property
    def updates(self) -> tuple[int, int]:
        """The range of updates: the first, and one past the last."""
        return self.clients[0][0], self.clients[-1][1]

    @property
    def params(self) -> JSON:
        return {
            "step": self.step,
            "defense": text_of(self.defense),
            "trained": text_of(self.trained),
            "adversary": text_of(self.settings),
            "arm": self.arm,
            "threat": threat_of(self.threat),
            "rounds": self.rounds,
            "records": list(self.updates),
            **({"clients": [list(client) for client in self.clients]} if len(self.clients) > 1 else {}),
            "seed": self.seed,
            **({} if self.without is None else {"without": self.without}),
        }


@dataclass(frozen=True)
class CallCell:
    """One call of a function of a module on plain values, which needs no study: what a paper's table is measured by.

    The function returns what a cell leaves: JSON and tensors. ``code`` says which state of its code is meant.
    """

    kind: ClassVar[Literal["call"]] = "call"

    function: Callable[..., tuple[JSON, dict[str, Tensor]]]
    name: str
    values: JSON
    code: str = ""
    parents: tuple[str, ...] = ()

    @property
    def params(self) -> JSON:
        return {"function": self.name, "values": dict(self.values), "code": self.code}

    @property
    def id(self) -> str:
        identity = {"format": FORMAT, "kind": self.kind, "params": self.params}
        return hashlib.sha256(canonical(identity).encode()).hexdigest()[:24]


def is_tuned(settings: tuple[Attack, ...]) -> bool:
    """Whether something is chosen on reference records first: one of several settings, or by the attack itself."""
    return len(settings) > 1 or isinstance(settings[0], Chooser)


Cell = TrainCell | TuneCell | AttackCell | CallCell
C = TypeVar("C", TrainCell, TuneCell, AttackCell)


def identified(cell: C, content: Mapping[str, str]) -> C:
    """The cell with its id: the hash of kind, values, parents, contents it uses, and the versions of its parts."""
    values = [getattr(cell, name, None) for name in ("defense", "trained", "settings")]
    identity = {
        "format": FORMAT,
        "kind": cell.kind,
        "params": cell.params,
        "content": dict(content),
        "parents": cell.parents,
        "versions": [versions(value) for value in values],
    }
    return replace(cell, id=hashlib.sha256(canonical(identity).encode()).hexdigest()[:24])


def text_of(value: Any) -> Any:
    """A value as it stands in ``params``: parts by their expression, one setting for itself, several as a list."""
    if isinstance(value, tuple):
        texts = [described(attack) for attack in value]
        return texts[0] if len(texts) == 1 else texts
    return value if value is None or isinstance(value, str | int | list) else described(value)


def threat_of(threat: Threat) -> JSON:
    """A threat as plain JSON."""
    return {"labels": threat.labels, "grants": sorted(threat.grants), "learning_rate": threat.learning_rate}


def versions(value: object) -> list[str]:
    """``name@version`` of a part and everything inside it."""
    listed = [f"{type(value).__name__}@{type(value).version}"] if isinstance(value, Part) else []
    inside: Sequence[object] = ()
    if dataclasses.is_dataclass(value):
        inside = [getattr(value, f.name) for f in dataclasses.fields(value)]
    elif isinstance(value, tuple | list):
        inside = value
    return listed + [version for item in inside for version in versions(item)]
