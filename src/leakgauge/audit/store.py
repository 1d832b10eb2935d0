"""The run folder: every finished cell is committed atomically, and nothing else counts.

``cells/<id>.safetensors`` is written before ``cells/<id>.json``; a cell is done when its JSON is there. Both appear by
rename, so that a kill at any moment leaves either the whole file or none. Files are private (mode 0600).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from leakgauge.errors import LeakgaugeError
from leakgauge.private import write

__all__ = ["RECORDS", "Store", "StoreError", "canonical", "write"]

RECORDS = "records.safetensors"
"""The originals and their labels, in the order of ``result.json``; only the report reads them."""


class StoreError(LeakgaugeError):
    """A run folder that cannot be used as it is."""


def canonical(value: Any) -> str:
    """One text per value: sorted keys, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True)
class Store:
    """One run folder. A redacted one keeps scores only: a good reconstruction shows what the original shows."""

    folder: Path
    redact: bool = False

    def cell(self, identity: str) -> Path:
        return self.folder / "cells" / f"{identity}.json"

    def done(self, identity: str) -> bool:
        return self.cell(identity).is_file()

    def commit(self, identity: str, result: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        if not self.redact:
            write(self.cell(identity).with_suffix(".safetensors"), save(dict(tensors)))
        write(self.cell(identity), canonical(result).encode())

    def keep(self, inputs: Tensor, labels: Tensor) -> None:
        """Keep the originals, for pictures side by side; a redacted run has none, and loses those it had."""
        if self.redact:
            (self.folder / RECORDS).unlink(missing_ok=True)
        else:
            kept = {"inputs": inputs.detach().cpu().float().contiguous(), "labels": labels.detach().cpu().contiguous()}
            write(self.folder / RECORDS, save(kept))

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
