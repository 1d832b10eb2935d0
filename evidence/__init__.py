"""Evidence: every claim of the project, measured by one command, ``python -m evidence``.

``rows.toml`` holds the claims (what, and the bar it must pass), ``checks/`` the functions that measure them.
A claim without a check, or a check without a claim, is an error. A check returns numbers, each with its bar; whether
it passes is computed. Results are stored one by one in
``docs/evidence/``; ``docs/evidence.md`` and the numbers in README.md are generated from them, and say which results
are older than the code they speak of.
"""

from evidence.measurement import (
    Bar,
    Measurement,
    Number,
    above,
    at_least,
    at_most,
    below,
    exactly,
    numbers,
    within,
)
from evidence.registry import CHECKS, Check, Context, check

__all__ = [
    "CHECKS",
    "Bar",
    "Check",
    "Context",
    "Measurement",
    "Number",
    "above",
    "at_least",
    "at_most",
    "below",
    "check",
    "exactly",
    "numbers",
    "within",
]
