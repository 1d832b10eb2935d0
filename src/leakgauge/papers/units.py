"""Units of work as cells of the audit's store: one call each, identified by its arguments and its code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.audit.cells import CallCell
from leakgauge.papers.contract import Measured, Samples, Scale, Table

LARGEST = 1e300


def units_of(table: Table, scale: Scale) -> dict[str, CallCell]:
    """The units of work of a scale by name. An id changes with the arguments, and with the file of ``measure``."""
    size, measure = table.sizes.get(scale), table.measure
    if size is None or measure is None:
        return {}
    source = inspect.getsourcefile(measure)
    code = hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16] if source else ""
    name, call = f"{measure.__module__}:{measure.__qualname__}", partial(_measured, measure)
    return {unit: CallCell(call, name, dict(values), code) for unit, values in size.work.items()}


def _measured(measure: Callable[..., Measured | Samples], **values: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a unit of work leaves: JSON, and pictures as tensors."""
    result = measure(**values)
    whole = result if isinstance(result, Measured) else Measured(result)
    samples = {name: [_storable(value) for value in some] for name, some in whole.samples.items()}
    curves = {name: [[_storable(x), _storable(y)] for x, y in points] for name, points in whole.curves.items()}
    pictures = {name: picture.detach().cpu().float().contiguous() for name, picture in whole.pictures.items()}
    return {"samples": samples, "notes": dict(whole.notes), "curves": curves}, pictures


def _storable(value: float) -> float:
    """A number for JSON, which has no infinity."""
    return max(-LARGEST, min(LARGEST, float(value)))


def older(table: Table, scale: Scale, recorded: Mapping[str, str]) -> bool:
    """Whether some recorded unit (its id by name) is none of the present ones: arguments or code have changed."""
    present = {unit: cell.id for unit, cell in units_of(table, scale).items()}
    return not recorded or any(present.get(unit) != known for unit, known in recorded.items())
