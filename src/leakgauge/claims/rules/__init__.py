"""What is asked of each setting. A rule is a function of a setting and its surroundings that yields findings."""

from leakgauge.claims.rules import flower, nvflare, opacus, own
from leakgauge.claims.rules.base import RULES, findings_of

__all__ = ["RULES", "findings_of", "flower", "nvflare", "opacus", "own"]
