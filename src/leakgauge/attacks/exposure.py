"""Exposure: which records of a client's own batch peeling would give away, from one forward pass and no gradient.

Which units each record activates is all that peeling needs: a unit that one record alone activates gives that record;
without it, others are alone elsewhere. The pass that training makes anyway shows it (:class:`Watch`), so that a client
can look before every update that it sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.attacks.linear_layers import LinearLayer, normalised_by
from leakgauge.attacks.recovering import first_layer
from leakgauge.errors import DataError, ModelError
from leakgauge.task import Task
from leakgauge.types import Records

NO_LAYER = "no linear layer with a bias takes the record itself and meets ReLU, so that peeling has no hold"


@dataclass(frozen=True)
class Exposure:
    """Which records peeling would give away (``exposed``), and in which pass (``passes``, 0: never)."""

    exposed: tuple[bool, ...]
    passes: tuple[int, ...]

    @property
    def share(self) -> float:
        return sum(self.exposed) / max(1, len(self.exposed))

    def __str__(self) -> str:
        return f"{sum(self.exposed)} of {len(self.exposed)} records can be read off the update by peeling"


Grid = np.ndarray[Any, np.dtype[np.bool_]]


def peelable(active: Grid) -> Exposure:
    """Peel a grid ``[records, units]`` of which record activates which unit, as long as a record is alone somewhere."""
    small = np.uint8 if len(active) < 256 else np.uint32  # a training step must not wait for its own check
    crowd = active.sum(0, dtype=small)  # of each unit: how many records that are left activate it
    passes, turn = np.zeros(len(active), dtype=np.int64), 0
    while len(alone := np.flatnonzero(crowd == 1)):
        turn += 1
        fresh = active[:, alone].any(1) & (passes == 0)
        passes[fresh] = turn
        crowd -= active[fresh].sum(0, dtype=small)
    each = passes.tolist()
    return Exposure(tuple(turn > 0 for turn in each), tuple(each))


def exposure(task: Task, records: Records, *, layer: LinearLayer | None = None) -> Exposure:
    """What peeling would take from one update of these records, all of them in one batch.

    A fact about network and records: the task's protection and local steps are not asked (``preflight`` does). Finding
    the ``layer`` takes longer than the rest; who asks every round uses :class:`Watch`.
    """
    if not isinstance(records, Records):
        what = f"the records are a {type(records).__name__}"
        raise DataError(what, where="exposure", remedy="give Records(inputs, labels, task.domain)")
    layer = layer or _layer(task)
    weight, bias = (task.params[layer.parameter(name)] for name in ("weight", "bias"))
    with torch.no_grad():
        inputs = normalised_by(task, records.inputs.to(weight)).flatten(1)
        return peelable(_grid(torch.nn.functional.linear(inputs, weight, bias)))


class Watch:
    """Looks at the passes of the task's own model: ``with Watch(task) as watch:``, then train as always.

    ``watch.exposure`` is that of the last pass, which should be of one batch.
    """

    def __init__(self, task: Task) -> None:
        self._module: nn.Module = task.model.get_submodule(_layer(task).name)
        self._exposure: Exposure | None = None
        self._hook: Any = None

    def __enter__(self) -> Self:
        def note(module: nn.Module, args: tuple[Tensor, ...], before: Tensor) -> None:
            self._exposure = peelable(_grid(before))  # now, while the processor still has it at hand

        self._hook = self._module.register_forward_hook(note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hook.remove()

    @property
    def exposure(self) -> Exposure:
        if self._exposure is None:
            raise DataError("the model has not run yet", where="Watch", remedy="run it on a batch first")
        return self._exposure


def _grid(before: Tensor) -> Grid:
    grid: Grid = before.detach().cpu().numpy() > 0
    return grid


def _layer(task: Task) -> LinearLayer:
    layer = first_layer(task)
    if layer is None:
        raise ModelError(NO_LAYER, where="exposure", remedy="run preflight for what else leaks")
    return layer


__all__ = ["Exposure", "Watch", "exposure", "peelable"]
