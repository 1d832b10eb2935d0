"""The plan: the cells of an audit, each with an identity that says all it depends on.

A cell's id is the hash of its kind, its resolved parameters, its parents, the contents it uses and the versions of its
parts. Chunks of records are fixed here, so that the result does not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from leakgauge import parse
from leakgauge.audit.prepare import Prepared, digest
from leakgauge.audit.spec import Spec
from leakgauge.audit.store import canonical
from leakgauge.expr import Part

Arm = Literal["real", "noise", "another", "undefended"]
CHUNK = 10
"""Updates attacked together in one cell: enough for the batched solver, few enough to lose little."""


@dataclass(frozen=True)
class Cell:
    """A unit of work: one adversary against one defense on a chunk of records, in one arm."""

    id: str
    kind: Literal["attack"]
    params: dict[str, Any]
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All cells in the order in which they are worth doing."""

    cells: tuple[Cell, ...]

    def of(self, **wanted: Any) -> list[Cell]:
        """The cells whose parameters agree with ``wanted``."""
        return [c for c in self.cells if all(c.params.get(k) == v for k, v in wanted.items())]


def plan(spec: Spec, prepared: Prepared) -> Plan:
    """Every defense × adversary × arm × chunk; the undefended arm is the positive control, with nulls of its own."""
    content = {
        "task": prepared.content,
        "records": digest({"x": prepared.records.inputs, "y": prepared.records.labels}),
        "recipe": repr(prepared.task.recipe),
    }
    defenses = {"undefended": "identity()", **spec.defenses}
    cells: dict[str, Cell] = {}
    for text in dict.fromkeys(defenses.values()):
        for adversary in dict.fromkeys(spec.adversaries.values()):
            for arm in ("real", "noise", "another"):
                for start in range(0, spec.task.records, CHUNK):
                    cell = _cell(spec, text, adversary, arm, start, content)
                    cells[cell.id] = cell
    return Plan(tuple(cells.values()))


def _cell(spec: Spec, defense: str, adversary: str, arm: str, start: int, content: dict[str, str]) -> Cell:
    params: dict[str, Any] = {
        "defense": repr(parse(defense, "mechanism", where="defenses")),
        "adversary": repr(parse(adversary, "attack", where="adversaries")),
        "arm": arm,
        "records": [start, min(start + CHUNK, spec.task.records)],
        "threat": spec.threat.model_dump(mode="json"),
        "seed": spec.seed,
    }
    parts = versions(parse(defense)) + versions(parse(adversary))
    identity = canonical({"kind": "attack", "params": params, "content": content, "versions": parts})
    return Cell(hashlib.sha256(identity.encode()).hexdigest()[:24], "attack", params)


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
