"""The one capture format: update files in a folder per run, private, whole or not at all, and bounded in size.

``run-<id>/r<round>.safetensors`` holds the weights that a round began with (buffers included, since the model needs
them) and ``run-<id>/r<round>-client<node>.safetensors`` what a client sent; a client writes both into a folder
``node-<id>`` of its own. Metadata: ``kind = state``, ``sign = 1`` (before and after are known), ``round``, ``client``,
``examples``, and in ``buffers`` the entries that are not trained.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leakgauge import guards
from leakgauge.errors import LeakgaugeError
from leakgauge.integrations.exchange import Arrays

VARIABLE = "LEAKGAUGE_CAPTURE"
LIMIT = 4 << 30
"""Bytes that all captures of a folder may take together."""


@dataclass(frozen=True)
class Files:
    """A folder of captures that never grows beyond ``limit`` bytes."""

    folder: Path
    limit: int = LIMIT

    def __post_init__(self) -> None:
        guards.count(self.limit, "limit", "capture")
        if not self.folder.is_absolute():  # apps run in a folder of the framework's
            raise LeakgaugeError(f"{str(self.folder)!r} is relative", where="capture", remedy="give an absolute folder")

    def start(self, place: Path, number: int, weights: Arrays) -> Path:
        """The weights that a round began with, written once; the place that they are in.

        A round that began with other weights belongs to another run of the same name (NVFlare's simulator calls every
        job alike): it gets the next place, ``…-2``, since an update beside foreign weights means nothing.
        """
        for again in itertools.count(1):
            own = place if again == 1 else place.with_name(f"{place.name}-{again}")
            path = self.folder / own / f"r{number}.safetensors"
            if not path.exists():
                self._write(path, weights, round=number)
                return own
            if _holds(path, weights):
                return own
        raise AssertionError("a count ended")

    def sent(
        self,
        place: Path,
        number: int,
        client: int | str,
        weights: Arrays,
        *,
        examples: int | None,
        buffers: Iterable[str],
    ) -> Path:
        """What a client sent back."""
        facts: dict[str, object] = {"round": number, "client": client, "buffers": list(buffers)}
        path = self.folder / place / f"r{number}-client{plain(client)}.safetensors"
        self._write(path, weights, **facts, **({} if examples is None else {"examples": examples}))
        return path

    def next_round(self, place: Path) -> int:
        """The round after the last one that is written down, for apps that do not state theirs."""
        names = [re.match(r"r(\d+)", path.name) for path in (self.folder / place).glob("r*.safetensors")]
        return 1 + max((int(match.group(1)) for match in names if match), default=0)

    def _write(self, path: Path, weights: Arrays, **facts: object) -> None:
        from safetensors.numpy import save

        from leakgauge.storage.private import prepare, write
        from leakgauge.storage.states import metadata_of

        content = save(
            {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in weights.items()},
            metadata=metadata_of("state", sign=1, **facts),
        )
        prepare(self.folder)
        if self._size() + len(content) > self.limit:
            raise LeakgaugeError(
                f"is full ({self.limit:,} bytes)", where=str(self.folder), remedy="move old runs away, or raise limit"
            )
        write(path, content)

    def _size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*.safetensors"))


def _holds(path: Path, weights: Arrays) -> bool:
    """Whether a file holds these weights; one that cannot be read holds others."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        there = load(path.read_bytes())
    except (OSError, SafetensorError):
        return False
    return there.keys() == weights.keys() and all(value.tobytes() == weights[n].tobytes() for n, value in there.items())


def files_of(folder: str | None, limit: int) -> Files:
    """The folder that is named, else the one in the node's environment.

    Never one from the run's configuration, which whoever submits a run could point at any place of the node's disk.
    """
    chosen = folder or os.environ.get(VARIABLE)
    if not chosen:
        raise LeakgaugeError("there is no folder", where="capture", remedy=f"set {VARIABLE} where the node runs")
    return Files(Path(chosen), limit)


def plain(name: int | str) -> str:
    """A name of a run or client as a piece of a file's name: it may be somebody else's."""
    return re.sub(r"[^A-Za-z0-9-]", "_", str(name))[:80]


def run_folder(run: int | str, node: int | str | None = None) -> Path:
    """Where the files of a run are; a client's own with its node."""
    whole = Path(f"run-{plain(run)}")
    return whole if node is None else whole / f"node-{plain(node)}"
