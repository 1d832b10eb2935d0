"""Is a value beyond what the same attack reaches on noise? A test relative to the spread of several draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

LEVEL = 0.01
"""The chance that an update without information counts as more than noise."""


def threshold(nulls: Sequence[float], *, level: float, least: float) -> float:
    """What a further draw from the law of ``nulls`` exceeds with probability ``level`` at most.

    ``mean + t · s · √(1 + 1/n)`` with Student's t on n − 1 degrees of freedom: the upper prediction limit of one more
    normal draw. ``least`` is the smallest spread that is believed: draws that agree by chance, or because the attack
    gives the same answer whatever it gets, do not make a small difference certain.
    """
    count = len(nulls)
    mean = math.fsum(nulls) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in nulls) / (count - 1)) if count > 1 else math.inf
    freedom = max(count - 1, 1)
    return mean + float(stats.t.isf(level, freedom)) * max(spread, least) * math.sqrt(1 + 1 / count)
