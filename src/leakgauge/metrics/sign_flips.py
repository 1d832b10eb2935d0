"""The sign-flip test of paired scores: if nothing was learnt, the sign of each difference is a fair coin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK = 1_000_000
"""Signs that are drawn at a time."""


def sign_flip_p(gain: npt.NDArray[np.float64], resamples: int, generator: np.random.Generator) -> float:
    """The one-sided p-value of a sum of differences; exact up to 16 of them, else from ``resamples`` random flips."""
    n, observed = len(gain), gain.sum()
    slack = 1e-12 * np.abs(gain).sum()  # a tie must count as a tie, whatever the order of summation
    if n <= 16:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((signs @ gain >= observed - slack).mean())
    reached = 0
    for rows in _blocks(resamples, n):
        kept = generator.integers(0, 2, (rows, n)).astype(np.float64) @ gain  # the sum of those that keep their sign
        reached += int((2 * kept - observed >= observed - slack).sum())
    return (1 + reached) / (1 + resamples)


def _blocks(resamples: int, n: int) -> list[int]:
    """Rows at a time: many records times all resamples would fill memory. The draws are the same in any blocks."""
    rows = max(1, BLOCK // n)
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def least_p(records: int, resamples: int = 10_000) -> float:
    """The smallest p-value that so many records can reach."""
    return float(2.0**-records if records <= 16 else 1 / (1 + resamples))
