"""Results on disk, one JSON file per check, and what makes a result repeatable: commit and machine."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any

ABSOLUTE = re.compile(r"(?<![\w.~>/:])/(?:[\w.@+-]+/)+[\w.@+-]*")  # /a/b, but not ./a/b, a/b or https://a/b

Result = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """The results of the project at ``root``, in ``docs/evidence/<check>.json``."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "docs" / "evidence"

    def read(self, name: str) -> Result | None:
        """The stored result of a check; None where there is none, or none that can be read."""
        try:
            result = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return result if isinstance(result, dict) else None

    def write(self, name: str, result: Result) -> None:
        """Store a result whole or not at all, whenever the process dies."""
        write_atomically(
            self.folder / f"{name}.json",
            json.dumps(plain(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        )

    def scratch(self, name: str, fingerprint: str) -> Path:
        """Where a long check keeps partial work: apart for each state of its code, never committed."""
        return self.root / ".evidence" / fingerprint[:12] / name

    def commit(self, files: Iterable[Path]) -> tuple[str, bool]:
        """The short hash of the commit, and whether any of these files differs from it."""
        head = self._git("rev-parse", "--short", "HEAD")
        paths = [path.relative_to(self.root).as_posix() for path in files]
        return head or "unknown", not head or bool(paths and self._git("status", "--porcelain", "--", *paths))

    def _git(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(self.root), *arguments], capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def scrub(self, value: Any) -> Any:
        """A value with the paths of this machine taken out of its texts: results are published."""
        if isinstance(value, dict):
            return {key: self.scrub(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.scrub(entry) for entry in value]
        if not isinstance(value, str):
            return value
        for place, word in {self.root.resolve(): ".", sys.prefix: "<python>", Path.home(): "~"}.items():
            if len(str(place)) > 1:
                value = value.replace(str(place), word)
        return ABSOLUTE.sub("<path>", value)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def machine() -> dict[str, Any]:
    """The facts of the machine that a reader needs to judge a number, a speed above all."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        cores = os.cpu_count() or 1
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return {"cores": cores, "cpu": _cpu(), "torch": torch, "python": platform.python_version()}


def _cpu() -> str:
    try:
        models = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        models = None
    return models.group(1).strip() if models else platform.processor() or platform.machine()


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers of numpy and torch become Python's, infinities and NaN their names."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, Sequence):
        return [plain(v) for v in value]
    if not isinstance(value, Real) and hasattr(value, "item"):  # a zero-dimensional tensor
        value = value.item()
        return plain(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if isfinite(value) else str(float(value))
    return str(value)
