"""Reading a run folder: data only. Nothing here imports user code, unpickles, or needs torch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from leakgauge.errors import LeakgaugeError
from leakgauge.report.schema import Result

Image = npt.NDArray[np.float32]
RECORDS = "records.safetensors"
_CELL = re.compile(r"[0-9a-f]{1,64}")


class RunError(LeakgaugeError):
    """A run folder that cannot be read."""


@dataclass(frozen=True)
class Run:
    """A finished run: its result, and its pictures where they were kept.

    ``redact`` hides labels and every picture, not originals alone: a good reconstruction shows what the original
    shows, and a null may show another client's record.
    """

    folder: Path
    result: Result
    redact: bool = False

    def original(self, record: int) -> Image | None:
        """The private record itself."""
        return self._row(self.folder / RECORDS, record)

    def reconstruction(self, cell: str, row: int, name: str = "inputs") -> Image | None:
        """What an adversary made of a record; by name also its encoding: ``encoded``, and found, ``encodings``."""
        # an id is part of a path: accept nothing that could leave the folder
        return self._row(self.folder / "cells" / f"{cell}.safetensors", row, name) if _CELL.fullmatch(cell) else None

    def _row(self, path: Path, row: int, name: str = "inputs") -> Image | None:
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
        found = self._json("timings.json")
        items = found.items() if isinstance(found, dict) else ()
        return {str(k): float(v) for k, v in items if isinstance(v, int | float) and v > 0}

    def plan(self) -> list[dict[str, Any]]:
        """The cells of the audit; those that have what every cell has."""
        found = self._json("plan.json")
        cells = found if isinstance(found, list) else []
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
        try:
            return json.loads((self.folder / name).read_text())
        except (OSError, ValueError, RecursionError):
            return None


def read(folder: Path, *, redact: bool = False) -> Run:
    """The run in a folder; :class:`RunError` says what is missing or wrong."""
    path = folder / "result.json"
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        what = "has no result.json" if folder.is_dir() else "there is no such folder"
        raise RunError(
            what, where=str(folder), remedy="name the --out folder of a finished `leakgauge audit`"
        ) from None
    except (OSError, ValueError, RecursionError) as fault:
        raise RunError(f"cannot be read ({fault})", where=str(path), remedy="run the audit again") from None
    try:
        return Run(folder, Result.model_validate(raw), redact)
    except ValidationError as fault:
        raise RunError(_wrong(fault), where=str(path), remedy="run the audit again with this version") from None


def _wrong(fault: ValidationError) -> str:
    first, more = fault.errors()[0], fault.error_count() - 1
    key = ".".join(map(str, first["loc"])) or "the whole file"
    return f"{key}: {first['msg'].lower()}" + (f" (and {more} more)" if more else "")
