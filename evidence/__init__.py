"""Evidence: every claim of the project, measured by one command, ``python -m evidence``.

``rows.toml`` holds the claims (what, and the bar it must pass), ``checks/`` the functions that measure them.
A claim without a check, or a check without a claim, is an error. Results are stored one by one in
``docs/evidence/``; ``docs/evidence.md`` and the numbers in README.md are generated from them.
"""

from evidence.registry import CHECKS, Check, Context, Measurement, check

__all__ = ["CHECKS", "Check", "Context", "Measurement", "check"]
