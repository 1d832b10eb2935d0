"""Units of work as cells of the audit's store: one call each, identified by its arguments and its code."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, isnan
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.audit.cells import CallCell
from leakgauge.audit.store import canonical
from leakgauge.errors import DomainError
from leakgauge.papers.contract import Measured, Samples, Scale, Table
from leakgauge.papers.reached import reached_from

LARGEST = 1e300
"""What stood for infinity in cells that were stored before ``INFINITIES``."""
INFINITIES = {inf: "inf", -inf: "-inf"}
"""How JSON, which has no infinity, holds one."""


def units_of(table: Table, scale: Scale) -> dict[str, CallCell]:
    """The units of work of a scale by name. An id changes with the arguments, and with the code of ``measure``."""
    size, measure = table.sizes.get(scale), table.measure
    if size is None or measure is None:
        return {}
    for unit, values in size.work.items():
        _check_arguments(table.name, unit, values)
    code = code_of(measure)
    name, call = f"{measure.__module__}:{measure.__qualname__}", partial(_measured, measure)
    return {unit: CallCell(call, name, dict(values), code) for unit, values in size.work.items()}


def _check_arguments(table: str, unit: str, values: Mapping[str, Any]) -> None:
    try:
        canonical(dict(values))
    except (TypeError, ValueError) as fault:
        raise DomainError(
            f"the arguments of the unit {unit!r} cannot be stored as JSON ({fault})",
            where=table,
            remedy="give numbers, texts, lists and dictionaries; build anything else inside `measure`",
        ) from None


def code_of(measure: Callable[..., Any]) -> str:
    """The hash of the code that a unit is measured by.

    Of leakgauge's own tables this is what ``measure`` reaches in this room. Of somebody else's it is every Python file
    of the package, or of the folder if the module is in no package: what ``measure`` imports from there counts as well.
    """
    source = inspect.getsourcefile(measure)
    if source is None:
        return ""
    package = measure.__module__.partition(".")[0]
    if package == "leakgauge":
        return hashlib.sha256(reached_from(measure.__module__, measure.__name__).encode()).hexdigest()[:16]
    digest = hashlib.sha256()
    for name, path in sorted(_files_beside(package, Path(source))):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files_beside(package: str, source: Path) -> Iterator[tuple[str, Path]]:
    """The Python files of a top-level package, or those in the folder of a plain module, by their relative paths."""
    folders = [Path(folder) for folder in getattr(sys.modules.get(package), "__path__", ())]
    pattern = "**/*.py" if folders else "*.py"
    for folder in folders or [source.parent]:
        yield from ((path.relative_to(folder).as_posix(), path) for path in folder.glob(pattern) if path.is_file())


def _measured(measure: Callable[..., Measured | Samples], **values: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a unit of work leaves: JSON, and pictures as tensors."""
    result = measure(**values)
    if not isinstance(result, Measured | Mapping):
        raise DomainError(
            f"returned {type(result).__name__}", where="measure", remedy="return samples by cell, or a Measured"
        )
    whole = result if isinstance(result, Measured) else Measured(result)
    samples = {name: _numbers(some, f"the samples of {name!r}") for name, some in whole.samples.items()}
    curves = {
        name: [_point(x, y, f"point {place} of the curve {name!r}") for place, (x, y) in enumerate(points, 1)]
        for name, points in whole.curves.items()
    }
    pictures = {name: picture.detach().cpu().float().contiguous() for name, picture in whole.pictures.items()}
    return {"samples": samples, "notes": dict(whole.notes), "curves": curves}, pictures


def _numbers(values: Sequence[float], what: str) -> list[float | str]:
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        raise DomainError(
            f"{what} must be a list of numbers, got {type(values).__name__}",
            where="measure",
            remedy="return one number per record, for example [1.0]",
        ) from None
    for place, number in enumerate(numbers, 1):
        if isnan(number):
            raise DomainError(
                f"number {place} of {len(numbers)} in {what} is NaN",
                where="measure",
                remedy="leave such a record out, or return what it counts as",
            )
    return [storable(number) for number in numbers]


def _point(x: float, y: float, what: str) -> list[float | str]:
    return _numbers((x, y), what)


def storable(value: float) -> float | str:
    """A number for JSON: infinity as a text."""
    return INFINITIES.get(value, value)


def restored(value: float | str) -> float:
    """The number of :func:`storable`; what older cells hold in the place of infinity is infinity."""
    number = float(value)
    if isnan(number):
        raise ValueError("NaN is no measured number")
    return number if abs(number) < LARGEST else inf if number > 0 else -inf


def read_unit(result: Mapping[str, Any]) -> Measured | None:
    """Samples, notes and curves of a stored unit; None for a file that lacks some of it."""
    try:
        return Measured(
            {name: [restored(value) for value in some] for name, some in result["samples"].items()},
            dict(result["notes"]),
            {name: [(restored(x), restored(y)) for x, y in points] for name, points in result["curves"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def older(table: Table, scale: Scale, recorded: Mapping[str, str]) -> bool:
    """Whether some recorded unit (its id by name) is none of the present ones: arguments or code have changed."""
    present = {unit: cell.id for unit, cell in units_of(table, scale).items()}
    return not recorded or any(present.get(unit) != known for unit, known in recorded.items())
