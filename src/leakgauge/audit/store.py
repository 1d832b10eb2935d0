"""The run folder: every finished cell is committed atomically, and nothing else counts.

``cells/<id>.safetensors`` is written before ``cells/<id>.json``; a cell is done when its JSON is there. Both appear by
rename, so that a kill at any moment leaves either the whole file or none. The JSON holds the hash of the tensors; what
does not match, or cannot be read, is computed again. Files are private (mode 0600).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from leakgauge.errors import LeakgaugeError, brief
from leakgauge.storage import json_files
from leakgauge.storage.private import naming, swept, write
from leakgauge.storage.redaction import coarse
from leakgauge.storage.streams import regular

__all__ = ["RECORDS", "Store", "StoreError", "canonical", "write"]

RECORDS = "records.safetensors"
"""The originals and their labels, in the order of ``result.json``; only the report reads them."""
WRITTEN_LAST = ("report.html", "report.md", "junit.xml", "result.json", "timings.json", "signature.json")
"""What a finished run says of its records; in a run that is not redacted, with pictures and labels."""


class StoreError(LeakgaugeError):
    """A run folder that cannot be used as it is."""


def canonical(value: Any) -> str:
    """One text per value: sorted keys, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _redacted(result: Mapping[str, Any]) -> bytes:
    """A cell with coarse scores, and without the hash of tensors that are gone."""
    rest = {name: value for name, value in result.items() if name not in ("params", "tensors")}
    return canonical({**coarse(rest), "params": result.get("params"), "redacted": True}).encode()


def _unreadable(path: Path, fault: Exception) -> StoreError:
    reason = brief(" ".join(str(fault).split()) or type(fault).__name__)
    return StoreError(
        f"cannot be read ({reason})", where=str(path), remedy="delete it; the same command computes it again"
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
        if self.redact and result.get("kind") != "train":
            write(self.cell(identity), _redacted(result))
            return
        digest: dict[str, str] = {}
        if tensors:
            content = save(dict(tensors))
            write(self._tensors(identity), content)
            digest = {"tensors": _digest(content)}
        write(self.cell(identity), canonical({**result, **digest}).encode())

    def keep(self, inputs: Tensor, labels: Tensor) -> None:
        """Keep the originals, for pictures side by side; a redacted run has none, and loses all pictures it had."""
        if self.redact:
            if (self.folder / RECORDS).exists():  # a plain run: its reports must not outlive a redaction that is killed
                for name in (*WRITTEN_LAST, RECORDS):
                    (self.folder / name).unlink(missing_ok=True)
            self._redact()
        else:
            tensors = {
                "inputs": inputs.detach().cpu().float().contiguous(),
                "labels": labels.detach().cpu().contiguous(),
            }
            write(self.folder / RECORDS, save(tensors))

    def forget(self, planned: Container[str]) -> None:
        """Remove the cells of other plans, and what the log says of them.

        A run that was not redacted has its records in the order of the seed, from which their labels follow; and the
        names of its cells are hashes without a key, which confirm a guess at the records.
        """
        for path in (self.folder / "cells").glob("*"):
            if path.is_file() and path.stem not in planned:
                path.unlink()
        self._filter_log(lambda event: event.get("cell") is None or event["cell"] in planned)

    def _filter_log(self, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        """Leave only such events in ``log.jsonl``, and no line that is none."""
        log, lines = self.folder / "log.jsonl", list[str]()
        if not log.is_file():
            return
        for line in self._logged().splitlines(keepends=True):
            with suppress(ValueError, RecursionError, TypeError):
                event = json_files.loads(line)
                lines += [line] if isinstance(event, dict) and wanted(event) else []
        write(log, "".join(lines).encode())

    def _redact(self) -> None:
        """Take from finished cells what a redacted run does not keep."""
        cells = self.folder / "cells"
        for path in cells.glob("*.json"):
            if not self._whole(path.stem):
                path.unlink()
        for path in cells.glob("*.safetensors"):
            if not self.done(path.stem) or self.result(path.stem).get("kind") != "train":
                path.unlink()
        for path in cells.glob("*.json"):
            result = self.result(path.stem)
            if result.get("kind") != "train" and not result.get("redacted"):
                try:
                    write(path, _redacted(result))
                except (ValueError, RecursionError):  # text that no encoding has: no cell of ours
                    path.unlink()
        for path in cells.glob("*.fault"):
            path.unlink()
        self._filter_log(lambda event: event.get("event") != "fault")

    def result(self, identity: str) -> dict[str, Any]:
        """What a finished cell says. The file may be anybody's: what no cell can be is a :class:`StoreError`."""
        path = self.cell(identity)
        try:
            if not path.is_file():  # reading a pipe or a device may never end
                raise ValueError("is no regular file" if path.exists() else "no such file")
            read: Any = json_files.loads(json_files.content(path).decode())
            if not isinstance(read, dict):
                raise ValueError("is no table of values")
        except (OSError, ValueError, RecursionError) as fault:
            raise _unreadable(path, fault) from None
        return read

    def tensors(self, identity: str) -> dict[str, Tensor]:
        path = self._tensors(identity)
        try:
            regular(path)
            return load_file(path)
        except (OSError, ValueError, RuntimeError, SafetensorError, LeakgaugeError) as fault:
            raise _unreadable(path, fault) from None

    def _tensors(self, identity: str) -> Path:
        return self.cell(identity).with_suffix(".safetensors")

    def log(self, **event: Any) -> None:
        """One line of ``log.jsonl``: what happened when. The result does not depend on it."""
        path = self.folder / "log.jsonl"
        line = canonical({"time": round(time.time(), 3), **event}) + "\n"
        # without waiting: a pipe of this name, which somebody put there, is an error and not a standstill
        # and a link is not followed: it could lead anywhere
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        with naming(path), open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
            file.write(line)

    def _logged(self) -> str:
        """The text of the log; none where there is no log, or one that no audit wrote."""
        path = self.folder / "log.jsonl"
        try:
            return json_files.content(path).decode(errors="replace") if path.is_file() else ""
        except ValueError:
            return ""

    def timings(self) -> dict[str, float]:
        """Cell → seconds of one processor, from the log."""
        seconds: dict[str, float] = {}
        for line in self._logged().splitlines():
            with suppress(ValueError, RecursionError, OverflowError):  # a kill may cut a line; others may write, too
                match json_files.loads(line):
                    case {"event": "done", "cell": str(cell), "seconds": int() | float() as spent}:
                        seconds[cell] = float(spent)
        return seconds

    def sweep(self) -> None:
        """Remove what a killed run left half written, and forget cells whose files are not what was committed."""
        for folder in (self.folder, self.folder / "cells"):
            swept(folder)
        for path in (self.folder / "cells").glob("*.json"):
            if path.is_dir():
                raise StoreError("is a folder", where=str(path), remedy="remove it; a cell is a file")
            if not self._whole(path.stem):
                path.unlink()

    def _whole(self, identity: str) -> bool:
        """Whether a finished cell can be read, and its tensors are those it was committed with."""
        try:
            result = self.result(identity)
        except StoreError:
            return False
        if result.get("redacted") and not self.redact:
            return False  # its scores are coarse
        digest = result.get("tensors")
        if digest is None:
            return True
        path = self._tensors(identity)
        if not path.is_file():
            return self.redact  # a redacted run drops them on purpose
        with path.open("rb") as stream:  # in pieces: it may be of any size
            return bool(digest == hashlib.file_digest(stream, "sha256").hexdigest())
