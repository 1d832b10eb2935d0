"""An NVFlare job or a site's privacy policy, read off its JSON files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leakgauge.claims.facts import Placed
from leakgauge.claims.findings import Examined, refused
from leakgauge.claims.settings import NVFlare
from leakgauge.claims.source import IGNORED, LARGEST, MOST, setting_named
from leakgauge.errors import LeakgaugeError

OTHER = (".conf", ".yml", ".yaml")
"""Forms of a configuration that are not read."""


def job_settings(folder: Path) -> tuple[list[Placed], list[Examined], int | None, list[str]]:
    """The filters that the JSON files of a folder name, those whose values have no meaning, the largest number of
    rounds, and what was not read."""
    placed: list[Placed] = []
    others: list[Examined] = []
    rounds: list[int] = []
    notes: list[str] = []
    for path in _files(folder):
        name = path.relative_to(folder).as_posix() if path != folder else path.name
        if path.suffix in OTHER:
            notes.append(f"{name} is not read: give the job as JSON (nvflare exports it)")
            continue
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError(f"larger than {LARGEST:,} bytes")
            content = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as fault:
            notes.append(f"{name} is not read: {fault}")
            continue
        for table in _tables(content):
            rounds += [n for n in [table.get("num_rounds")] if isinstance(n, int) and not isinstance(n, bool) and n > 0]
            try:
                placed += _filter(table, name)
            except (LeakgaugeError, TypeError, ValueError) as fault:
                others.append(refused(str(table.get("path") or table.get("name")), name, fault))
    return placed, others, max(rounds, default=None), notes


def _files(folder: Path) -> Iterator[Path]:
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    for path in paths[: 10 * MOST]:
        hidden = any(p in IGNORED or p.startswith(".") for p in path.relative_to(folder).parts)
        config = path.name.startswith(("config_", "privacy", "meta", "resources")) or path == folder
        if path.is_file() and not hidden and (path.suffix == ".json" or (path.suffix in OTHER and config)):
            yield path


def _tables(content: Any) -> Iterator[dict[str, Any]]:
    todo = [content]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo.extend(reversed(list(one.values())))
        elif isinstance(one, list):
            todo.extend(reversed(one))


def _filter(table: dict[str, Any], file: str) -> Iterator[Placed]:
    """``{"path": "nvflare.….PercentilePrivacy", "args": {…}}``; older jobs say ``name``."""
    path = table.get("path") or table.get("class_path") or table.get("name")
    maker = setting_named(str(path).rpartition(".")[2]) if isinstance(path, str) else None
    if maker is None or not (issubclass(maker, NVFlare) or str(path).startswith("leakgauge.")):
        return
    arguments = table.get("args")
    fields = {field.name for field in dataclasses.fields(maker)}
    values = {k: v for k, v in (arguments if isinstance(arguments, dict) else {}).items() if k in fields}
    yield Placed(maker(**values), file, "train")
