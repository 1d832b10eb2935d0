"""What a client got and what it sends back, whatever the framework: checked arrays by name."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from leakgauge.errors import ObservationError

Arrays = dict[str, np.ndarray[Any, Any]]

WITHHELD = "the update was withheld by this client"
"""The only text that a server gets: neither why nor how much."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class Exchange:
    """The weights that a client got and those that it sends back, by the same names."""

    before: Arrays
    after: Arrays

    @property
    def buffers(self) -> tuple[str, ...]:
        """Entries that are not trained: counters, and running statistics where the names tell."""
        return tuple(n for n, value in self.after.items() if n.endswith(STATISTICS) or value.dtype.kind != "f")


def exchanged(before: Arrays, after: Arrays, where: str) -> Exchange:
    """What came and what goes, checked: the same names, shapes and types, finite numbers."""
    if set(before) != set(after):
        raise ObservationError("the reply names other arrays than the message", where=where)
    for name, value in after.items():
        if value.shape != before[name].shape or value.dtype != before[name].dtype:
            raise ObservationError(f"{name!r} changed its shape or type", where=where, remedy="send it as it came")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ObservationError(f"{name!r} is not finite", where=where, remedy="lower the learning rate")
    return Exchange(before, after)


def refused(log: logging.Logger, what: str, fault: Exception) -> None:
    """Say in the node's own log, and nowhere else, why an update stays here."""
    log.error("%s: the update was withheld: %s: %s", what, type(fault).__name__, fault)
