"""What a worker of a cluster does: one cell of a study, without a run folder."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.base import compute
from leakgauge.audit.engines.luggage import Luggage
from leakgauge.audit.environment import differences, environment
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work

Parents = Mapping[str, tuple[dict[str, Any], Luggage | None]]
"""Cell → what it left, as the driver's store has it."""


@dataclass(frozen=True)
class Answer:
    """What a worker sends back: JSON and tensors (as safetensors), a fault, or why it cannot take part."""

    result: dict[str, Any] | None = None
    tensors: bytes = b""
    seconds: float = 0.0
    fault: str = ""
    trace: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Carried(Store):
    """Finished parents that came along; a store that writes nothing."""

    parents: Parents = field(default_factory=dict)

    def done(self, identity: str) -> bool:
        return identity in self.parents

    def result(self, identity: str) -> dict[str, Any]:
        return self.parents[identity][0]

    def tensors(self, identity: str) -> dict[str, Tensor]:
        luggage = self.parents[identity][1]
        # a copy: states are loaded into models, and the arrays of a node are everybody's
        return {} if luggage is None else {name: value.clone() for name, value in luggage.value().items()}


_visitor: dict[str, Any] = {}
"""The study of this worker, by its key: unpacked once per process."""


def visit(
    key: str,
    luggage: Luggage,
    packed: bytes,
    names: tuple[str, ...],
    expected: Mapping[str, str],
    redact: bool,
    *parents: Any,
) -> Answer:
    """Compute one cell. ``parents`` are what the cells of those names left."""
    if refused := _refused(expected):
        return Answer(refused=refused)
    torch.set_num_threads(1)
    if key not in _visitor:
        _visitor.clear()
        _visitor[key] = luggage.value()
    carried = Carried(Path(os.devnull), redact, dict(zip(names, parents, strict=True)))
    cell: Cell = pickle.loads(packed)  # noqa: S301 - bytes of our own driver
    computed = compute(cell, Work(_visitor[key], carried))
    if computed.outcome is None:
        return Answer(fault=computed.fault, trace=computed.trace)
    result, tensors = computed.outcome
    return Answer(result, save(dict(tensors)) if tensors else b"", computed.seconds)


def _refused(expected: Mapping[str, str]) -> str:
    """Why this node cannot take part: whoever reaches it may run code, or its numbers would be others."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode != "token":
        return f"a node runs without RAY_AUTH_MODE=token (it has {mode!r}): whoever reaches it can run code there"
    here = _here()
    return "" if here == dict(expected) else f"a node computes otherwise ({differences(expected, here)})"


@cache
def _here() -> dict[str, str]:
    return environment()
