"""The rows that come with leakgauge, so that a row of one's own stands beside all others without measuring them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from leakgauge.standings.rows import Score
from leakgauge.standings.running import in_order, scores_of
from leakgauge.standings.set_ups import Size
from leakgauge.storage import json_files

FILE = Path(__file__).parent / "published.json"
"""``standings.json`` of the folder in which all rows were measured."""


def published(size: Size, file: Path = FILE) -> list[Score]:
    """The published rows of a size, without those whose parts have changed since."""
    if not file.is_file():
        return []
    rows = json_files.loads(json_files.content(file))["rows"]
    return scores_of([(raw["identity"], raw) for raw in rows], size, folder=file)


def beside(own: Sequence[Score], size: Size, file: Path = FILE) -> list[Score]:
    """Own rows, and the published ones that are not among them, marked as such."""
    measured = {score.row for score in own}
    others = [replace(score, published=True) for score in published(size, file) if score.row not in measured]
    return in_order([*own, *others], size)


__all__ = ["beside", "published"]
