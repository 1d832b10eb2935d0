"""What was measured, as JSON beside the sources: the listing and the page are made from it."""

from __future__ import annotations

import base64
import io
import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from PIL import Image as Pillow
from torch import Tensor

import leakgauge
from leakgauge.papers.contract import SCALES, Scale, Table
from leakgauge.papers.judging import Outcome, Row, judged, judged_again, summary
from leakgauge.papers.units import older, restored, storable

RESULTS = Path(__file__).parent / "results"
PICTURES = 8
"""How many pictures of a row are kept."""
NUMBERS = ("value", "low", "high")
"""What may be infinite in a row."""


def command(table: Table, scale: Scale) -> str:
    return f"leakgauge papers run {table.name} --scale {scale}"


def stored(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON: what the page and the listing are made from."""
    table = outcome.table
    return {
        "table": table.name,
        "title": table.title,
        "scale": outcome.scale,
        "state": summary(outcome.rows, outcome.scale),
        "command": command(table, outcome.scale),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": outcome.seconds,
        "machine": f"{platform.machine()}, torch {torch.__version__}, Python {platform.python_version()}",
        "units": dict(outcome.units),
        "reduced": list(table.sizes[outcome.scale].reduced),
        "rows": [_storable_row(row) for row in outcome.rows],
        "notes": dict(outcome.notes),
        "curves": {name: [[*map(storable, point)] for point in points] for name, points in outcome.curves.items()},
        "pictures": {name: strip(row[:PICTURES]) for name, row in outcome.pictures.items()},
    }


def _storable_row(row: Row) -> dict[str, Any]:
    numbers = {name: getattr(row, name) for name in NUMBERS}
    return asdict(row) | {name: None if value is None else storable(value) for name, value in numbers.items()}


def _restored_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{name: None if row[name] is None else restored(row[name]) for name in NUMBERS}}


def strip(pictures: Tensor) -> dict[str, Any]:
    """Pictures ``[n, C, H, W]`` in [0, 1], side by side as one PNG, in base64, and its size in pixels."""
    levels = (pictures.nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8)
    beside = torch.cat(list(levels), 2).permute(1, 2, 0)
    image, buffer = Pillow.fromarray(beside.squeeze(2).numpy()), io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return {"width": image.width, "height": image.height, "png": base64.b64encode(buffer.getvalue()).decode()}


def _commit() -> str:
    """The commit of these sources, with a mark if they differ from it; without one, the version of the package."""
    head = _git("rev-parse", "--short=7", "HEAD")
    if head is None:
        return leakgauge.__version__
    changed = _git("status", "--porcelain", "--", "..", f":(exclude){RESULTS.name}")
    return f"{head} and changes" if changed else head


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(RESULTS.parent), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def record(outcome: Outcome, folder: Path = RESULTS) -> str:
    """Keep an outcome with the sources unless that would lose something; a sentence says which."""
    path, reason = _path(outcome.table, folder), refusal(outcome, recorded(outcome.table, folder))
    if reason:
        before = "the result that was recorded before is kept" if path.is_file() else "no result is kept"
        return f"not recorded: {reason}; {before}"
    path.write_text(json.dumps(stored(outcome), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return f"recorded in {path}"


def refusal(outcome: Outcome, before: Mapping[str, Any] | None) -> str:
    """Why an outcome must not replace what was recorded before; empty if it may.

    Units may be added to a scale bit by bit, none may be lost, and a larger scale replaces a smaller one when it is
    complete.
    """
    work = outcome.table.sizes[outcome.scale].work
    if outcome.faults:
        return f"{len(outcome.faults)} of {len(work)} units failed"
    if not outcome.units:
        return "no unit was run"
    if before is None:
        return ""
    order = SCALES.index(before["scale"]) - SCALES.index(outcome.scale)
    if order > 0:
        return f"{before['scale']} is recorded, which is larger than {outcome.scale}"
    needed = [unit for unit in before.get("units", {}) if unit in work] if order == 0 else list(work)
    if lost := [unit for unit in needed if unit not in outcome.units]:
        return f"{len(lost)} of {len(needed)} units that it needs were not run, such as {lost[0]!r}"
    return ""


def recorded(table: Table, folder: Path = RESULTS) -> dict[str, Any] | None:
    """What was kept of a table; None if nothing was."""
    path = _path(table, folder)
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    curves = {name: [[*map(restored, point)] for point in points] for name, points in result["curves"].items()}
    return {**result, "rows": [_restored_row(row) for row in result["rows"]], "curves": curves}


def is_older(table: Table, result: Mapping[str, Any]) -> bool:
    """Whether a reproduction's own code or settings have changed since it was recorded."""
    return older(table, result["scale"], result.get("units", {}))


def state_of(table: Table, folder: Path = RESULTS) -> str:
    """The state of a table in words: what was recorded, or why nothing can be."""
    result = recorded(table, folder)
    if result is None:
        word = summary(judged(table, None, {}))
        return f"{word}: {table.missing}" if table.missing else word
    word = summary(judged_again(table, result), result["scale"])
    scale = "" if word.startswith("smoke only") else f", {result['scale']}"
    return f"{word}{scale}{', older than its code' if is_older(table, result) else ''}"


def _path(table: Table, folder: Path) -> Path:
    return folder / f"{table.name.replace('/', '-')}.json"
