"""The features of a row of a table, for people to read: numbers in the unit of their source, categories by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leakgauge.audit.judge.values import Feature, Kind
from leakgauge.meaning import readable
from leakgauge.report.reading import Input

MOST = 40
"""Features of one record that are listed; more are not read."""


@dataclass(frozen=True)
class Line:
    """One feature of one record: the original, the reconstruction and the null as text.

    ``error`` is that of the reconstruction in standard deviations, infinite for a wrong category; ``right`` says that
    it counts as recovered.
    """

    name: str
    original: str
    reconstruction: str
    null: str
    error: float
    right: bool
    category: bool = False

    @property
    def distance(self) -> str:
        """``0.03 sd``, ``right``, ``wrong``."""
        if self.category:
            return "right" if self.right else "wrong"
        return f"{self.error:.2g} sd" if np.isfinite(self.error) else "wrong"


def lines(domain: Kind, original: Input | None, reconstruction: Input | None, null: Input | None) -> tuple[Line, ...]:
    """Every feature in the order of the columns; nothing where a row was not kept, or does not fit the features."""
    rows = [original, reconstruction, null]
    if any(row is None or row.ndim != 1 for row in rows):
        return ()
    columns = min(len(row) for row in rows if row is not None)
    described = domain.features or tuple(Feature(name=f"column {i}") for i in range(columns))
    listed, start = list[Line](), 0
    for feature in described:
        stop = start + max(len(feature.categories), 1)
        if stop > columns:
            return ()
        listed.append(_line(feature, [row[start:stop] for row in rows if row is not None], domain.tolerance or 0.0))
        start = stop
    return tuple(listed)


def _line(feature: Feature, blocks: Sequence[Input], tolerance: float) -> Line:
    original, reconstruction, null = (
        readable(block.tolist(), feature.categories, offset=feature.offset, unit=feature.unit) for block in blocks
    )
    if feature.categories:
        right = original == reconstruction != "?"
        return Line(feature.name, original, reconstruction, null, 0.0 if right else np.inf, right, category=True)
    gap = abs(float(blocks[1][0]) - float(blocks[0][0]))
    error = 0.0 if gap == 0 else gap / feature.spread if feature.spread > 0 else np.inf
    return Line(feature.name, original, reconstruction, null, error, error <= tolerance)


def nearest(every: Sequence[Line]) -> tuple[Line, ...]:
    """At most :data:`MOST` of them, those that were recovered best, in the order of the columns."""
    if len(every) <= MOST:
        return tuple(every)
    best = sorted(range(len(every)), key=lambda i: (not every[i].right, every[i].error, i))[:MOST]
    return tuple(every[i] for i in sorted(best))
