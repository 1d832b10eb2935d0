"""JSON of a run folder, which anybody may have written: every number in it is finite, every text can be written
again, or it is not read."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

MOST = 256 << 20
"""Bytes of a file in a run folder that are read into memory: the result of 10,000 records in 20 defenses has 100 MB."""
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a letter beyond 65,535; two of them are one."""


def content(path: Path) -> bytes:
    """The bytes of a file; a ValueError where they are too many. A file of any size may take no room on a disk."""
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size > MOST:
            raise ValueError(f"has more than {MOST >> 20} MB")
        return stream.read(MOST)


def loads(text: str | bytes) -> Any:
    """The values of a JSON text; a ValueError where a number is none (``NaN``) or leaves floats (``1e999``), or where
    half a letter stands alone (``\\ud800``), which no file holds."""
    text = text if isinstance(text, str) else text.decode()
    values = json.loads(text, parse_constant=_none, parse_float=_finite)
    if _HALVES.search(text):
        json.dumps(values, ensure_ascii=False).encode()
    return values


def _none(text: str) -> float:
    raise ValueError(f"{text[:40]} is no number that a float holds")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _none(text)
