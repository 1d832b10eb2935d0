"""JSON of a run folder, which anybody may have written: every number in it is finite, or it is not read."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(text: str | bytes) -> Any:
    """The values of a JSON text; a ValueError where a number is none (``NaN``) or leaves floats (``1e999``)."""
    return json.loads(text, parse_constant=_none, parse_float=_finite)


def _none(text: str) -> float:
    raise ValueError(f"{text[:40]} is no number that a float holds")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _none(text)
