"""The run folder: every finished cell is committed atomically, and nothing else counts.

``cells/<id>.safetensors`` is written before ``cells/<id>.json``; a cell is done when its JSON is there. Both appear by
rename, so that a kill at any moment leaves either the whole file or none. Files are private (mode 0600).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from leakgauge.errors import LeakgaugeError


class StoreError(LeakgaugeError):
    """A run folder that cannot be used as it is."""


def canonical(value: Any) -> str:
    """One text per value: sorted keys, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write(path: Path, content: bytes) -> None:
    """Write a private file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp gives mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class Store:
    """One run folder."""

    folder: Path

    def cell(self, identity: str) -> Path:
        return self.folder / "cells" / f"{identity}.json"

    def done(self, identity: str) -> bool:
        return self.cell(identity).is_file()

    def commit(self, identity: str, result: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        write(self.cell(identity).with_suffix(".safetensors"), save(dict(tensors)))
        write(self.cell(identity), canonical(result).encode())

    def result(self, identity: str) -> dict[str, Any]:
        path = self.cell(identity)
        try:
            read: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as fault:
            raise StoreError(
                f"cannot be read ({fault})", where=str(path), remedy="delete it; the same command computes it again"
            ) from None
        return read

    def tensors(self, identity: str) -> dict[str, Tensor]:
        return load_file(self.cell(identity).with_suffix(".safetensors"))

    def sweep(self) -> None:
        """Remove what a killed run left half written."""
        for left in (self.folder / "cells").glob(".*"):
            left.unlink(missing_ok=True)
