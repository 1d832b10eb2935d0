"""Defenses and attacks of the user's own: tried once before anything runs, and known by what they do.

The text of a part of ours, with its ``version``, says all that its results depend on. Of somebody else's code it does
not: the code may change between two runs, and two values may print alike. Cells therefore depend on its source and on
what it releases of a drawn update, and two defenses that print alike must release alike.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from typing import Any

import torch

from leakgauge.adversary.simulation.mechanism import known_updates, seeded
from leakgauge.defenses.protection import Protection
from leakgauge.defenses.update.chain import released
from leakgauge.study.roles import digest
from leakgauge.task import Task

PACKAGE = __name__.partition(".")[0]
PROBES = 2


def is_own(value: object) -> bool:
    """Whether the code of a part, an attack or a function comes from outside of this package."""
    module: str = _code(value).__module__
    return module.partition(".")[0] != PACKAGE


def has_own_code(protection: Protection) -> bool:
    return any(is_own(part) for part in protection.parts.values())


def fingerprint(task: Task) -> str:
    """What a client under a defense with own code computes: the sources, and releases of two drawn updates.

    Raises a :class:`~leakgauge.errors.LeakgaugeError` that names the part where a release is none. A part whose
    chance cannot be seeded is known by its source alone.
    """
    sources = source_of(task.protection.parts.values())
    first, second = (_releases(task) for _ in range(2))
    return sources + (first if first == second else "")


def _releases(task: Task) -> str:
    digests = []
    for place, known in enumerate(known_updates(task, PROBES)):
        with seeded(place):
            generator = torch.Generator().manual_seed(place)
            release = released(task.protection.chain, known.update, known.context, generator=generator)
            digests.append(digest(release.observed))
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:24]


def source_of(values: Iterable[object]) -> str:
    """The hash of the source of own parts and attacks; empty where all are ours."""
    texts = [_source(_code(value)) for value in values if is_own(value)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:24] if texts else ""


def _code(value: object) -> Any:
    """The function or class whose code a value runs."""
    return value if inspect.isroutine(value) or isinstance(value, type) else type(value)


def _source(code: Any) -> str:
    """Of a module the whole file, since a class may call its neighbours; in a notebook that of the class alone."""
    module = inspect.getmodule(code)
    try:
        return inspect.getsource(code if module is None or module.__name__ == "__main__" else module)
    except (OSError, TypeError):  # typed at a prompt, or compiled
        return f"{code.__module__}:{code.__qualname__}"
