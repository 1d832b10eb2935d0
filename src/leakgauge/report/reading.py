"""Reading a run folder: data only. Nothing here imports user code, unpickles, or needs torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from leakgauge.audit.judge.model import Result, RunError
from leakgauge.storage import json_files

__all__ = ["Input", "Run", "RunError", "read"]

Input = npt.NDArray[np.float32]
RECORDS = "records.safetensors"
_CELL = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True)
class Run:
    """A finished run: its result, and its records and reconstructions where they were kept.

    ``redact`` hides labels, reconstructions and nulls, not originals alone: a good reconstruction shows what the
    original shows, and a null may show another client's record.
    """

    folder: Path
    result: Result
    redact: bool = False

    def original(self, record: int) -> Input | None:
        """The private record itself."""
        return self._row(self.folder / RECORDS, record)

    def reconstruction(self, cell: str, row: int, name: str = "inputs") -> Input | None:
        """What an adversary made of a record; by name also its encoding: ``encoded``, and found, ``encodings``."""
        # an id is part of a path: accept nothing that could leave the folder
        return self._row(self.folder / "cells" / f"{cell}.safetensors", row, name) if _CELL.fullmatch(cell) else None

    def _row(self, path: Path, row: int, name: str = "inputs") -> Input | None:
        if self.redact or not path.is_file():
            return None
        try:
            with safe_open(str(path), framework="np") as file:
                return np.asarray(file.get_slice(name)[row], dtype=np.float32)
        except (OSError, SafetensorError, KeyError, IndexError, ValueError, TypeError):
            return None  # a report without one picture is worth more than no report

    def manifest(self) -> dict[str, str]:
        """Hashes of the reported and the reference records; empty where there are none."""
        read = self._json("manifest.json")
        return {str(k): str(v) for k, v in read.items() if isinstance(v, str)} if isinstance(read, dict) else {}

    def timings(self) -> dict[str, float]:
        """Cell → seconds of one processor; empty where nothing was timed."""
        read = self._json("timings.json")
        items = read.items() if isinstance(read, dict) else ()
        return {str(k): float(v) for k, v in items if isinstance(v, int | float) and 0 < v < 1e12}

    def plan(self) -> list[dict[str, Any]]:
        """The cells of the audit; those that have what every cell has."""
        read = self._json("plan.json")
        cells = read if isinstance(read, list) else []
        return [
            c
            for c in cells
            if isinstance(c, dict)
            and isinstance(c.get("id"), str)
            and "kind" in c
            and isinstance(c.get("params"), dict)
        ]

    def _json(self, name: str) -> Any:
        """A file beside the result; a report without it is worth more than no report."""
        path = self.folder / name
        try:
            return json_files.loads(json_files.content(path)) if path.is_file() else None
        except (OSError, ValueError, RecursionError):
            return None


def read(folder: Path, *, redact: bool = False) -> Run:
    """The run in a folder; :class:`RunError` says what is missing or wrong."""
    result = Result.load(folder)
    if not redact:
        return Run(folder, result)
    labelled = any(record.label is not None for _, defense in result.each() for record in defense.records)
    redacted = result.redacted()
    # a redacted audit has its records in a private order; those of a plain one follow from its seed
    return Run(folder, redacted.renumbered() if labelled else redacted, redact)
