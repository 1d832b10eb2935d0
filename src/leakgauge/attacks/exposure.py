"""Exposure: which records of a client's own batch peeling would give away, from one forward pass and no gradient.

Which units each record activates is all that peeling needs: a unit that one record alone activates gives that record;
without it, others are alone elsewhere. The pass that training makes anyway shows it (:class:`Watch`), so that a client
can look before every update that it sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leakgauge.attacks.linear_layers import LinearLayer, normalised_by
from leakgauge.attacks.recovering import first_layer
from leakgauge.errors import DataError, ModelError
from leakgauge.task import Task
from leakgauge.types import Records

NO_LAYER = "no linear layer with a bias takes the record itself and meets ReLU, so that peeling has no hold"


@dataclass(frozen=True)
class Exposure:
    """In which pass peeling would take each record (``passes``, 0: never)."""

    passes: tuple[int, ...]

    @property
    def exposed(self) -> tuple[bool, ...]:
        """Which records peeling would give away."""
        return tuple(turn > 0 for turn in self.passes)

    @property
    def share(self) -> float:
        return sum(self.exposed) / max(1, len(self.passes))

    def __str__(self) -> str:
        return f"{sum(self.exposed)} of {len(self.passes)} records can be read off the update by peeling"


def peelable(before: Tensor) -> Exposure:
    """Peel a batch by what enters its ReLU, ``[records, units]``, as long as a record is alone at some unit.

    A training step must not wait for its own check, which comes when the processor's caches are full of weights: so a
    record is the set of its units, as the bits of one whole number, and there are few calls on arrays. Equal records
    count as one: the quotient of a unit that only they activate is the record.
    """
    rows = _sets(before)
    passes = _passes(rows)
    if 0 not in passes or len(set(rows)) == len(rows):  # equal records are never alone
        return Exposure(tuple(passes))
    first = _first_equal(before, rows)
    kinds = sorted(set(first))
    turns = dict(zip(kinds, _passes([rows[record] for record in kinds]), strict=True))
    return Exposure(tuple(turns[record] for record in first))


def _passes(rows: Sequence[int]) -> list[int]:
    """The pass in which each record is alone at some unit, 0 if never; records are sets of units, as bits."""
    passes, turn = [0] * len(rows), 0
    left: Sequence[int] = range(len(rows))
    while left:
        once = again = 0
        for record in left:
            units = rows[record]
            again |= once & units
            once |= units
        alone = once & ~again
        if not alone:
            break
        turn += 1
        rest: list[int] = []
        for record in left:
            if rows[record] & alone:
                passes[record] = turn
            else:
                rest.append(record)
        left = rest
    return passes


def _first_equal(before: Tensor, rows: Sequence[int]) -> list[int]:
    """For each record the first one that is equal to it, but for rounding."""
    values, first = before.detach().double().cpu(), list[int]()
    near = torch.finfo(before.dtype).eps ** 0.5
    for record, units in enumerate(rows):
        same = (
            other
            for other in range(record)
            if rows[other] == units and bool((values[other] - values[record]).norm() <= near * values[record].norm())
        )
        first.append(next(same, record))
    return first


ZEROS: dict[torch.dtype, NDArray[np.floating[Any]]] = {
    torch.float32: np.zeros((), np.float32),
    torch.float64: np.zeros((), np.float64),
}
"""A zero that NumPy need not convert."""


def _sets(before: Tensor) -> list[int]:
    """The units that each record activates, as bits."""
    if before.dtype not in ZEROS:  # NumPy does not know all of torch's formats
        before = before.float()
    octets = np.packbits(np.greater(before.numpy(force=True), ZEROS[before.dtype]), axis=1)
    content, width, number = octets.tobytes(), octets.shape[1], int.from_bytes
    return [number(content[start : start + width], "little") for start in range(0, len(content), width)]


def exposure(task: Task, records: Records, *, layer: LinearLayer | None = None) -> Exposure:
    """What peeling would take from one update of these records, all of them in one batch.

    A fact about network and records: the task's protection and local steps are not asked (``preflight`` does). Finding
    the ``layer`` takes longer than the rest; who asks every round uses :class:`Watch`.
    """
    refuse_records(task, records, "exposure")
    layer = layer or _layer(task)
    weight, bias = (task.params[layer.parameter(name)] for name in ("weight", "bias"))
    with torch.no_grad():
        inputs = normalised_by(task, records.inputs.to(weight)).flatten(1)
        return peelable(torch.nn.functional.linear(inputs, weight, bias))


def refuse_records(task: Task, records: object, where: str) -> None:
    """Refuse what are not records of the task's domain."""
    if not isinstance(records, Records):
        what = f"the records are a {type(records).__name__}"
        raise DataError(what, where=where, remedy="give Records(inputs, labels, task.domain)")
    if records.domain.shape != task.domain.shape:
        what = f"the records have the shape {records.domain.shape}, the task's {task.domain.shape}"
        raise DataError(what, where=where, remedy="give records of the task's domain")


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
            self._exposure = peelable(before)  # now, while the processor still has it at hand

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


def _layer(task: Task) -> LinearLayer:
    layer = first_layer(task)
    if layer is None:
        raise ModelError(NO_LAYER, where="exposure", remedy="run preflight for what else leaks")
    return layer


__all__ = ["Exposure", "Watch", "exposure", "peelable"]
