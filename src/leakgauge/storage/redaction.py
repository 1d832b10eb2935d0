"""What a redacted run says less of: numbers to two digits, faults without their message."""

from __future__ import annotations

import math
import re
from typing import Any

DIGITS = 2
"""Significant digits of a redacted score: a third of them would tell one candidate for a record from fifty others."""
LARGEST = 1.7e308
"""What rounds up beyond the largest float, in a result of somebody else's: JSON has no infinity."""
LEFT_OUT = "message left out by --redact"


def coarse(value: Any) -> Any:
    """Plain JSON with every float to two significant digits. Rounding keeps the order, so that ranks survive."""
    if isinstance(value, float):
        rounded = float(f"{value:.{DIGITS}g}")
        return math.copysign(LARGEST, value) if math.isinf(rounded) else rounded
    if isinstance(value, dict):
        return {key: coarse(inner) for key, inner in value.items()}
    return [coarse(inner) for inner in value] if isinstance(value, list | tuple) else value


def discreet(fault: str) -> str:
    """A fault without what an exception says, which may quote a record: ``ValueError: got 17.3`` → ``ValueError (…)``.

    Sentences of the engines have no such message and stay.
    """
    kind, colon, _ = fault.partition(": ")
    if not colon:
        return fault
    return f"{kind if re.fullmatch('[A-Za-z_]+[A-Za-z_0-9]*', kind) else 'a fault'} ({LEFT_OUT})"
