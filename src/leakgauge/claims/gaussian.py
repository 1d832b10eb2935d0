"""The numbers behind findings: Gaussian noise as it is, by the exact formulas of :mod:`leakgauge.bounds`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakgauge.bounds import gaussian_delta, gaussian_epsilon

DELTA = 1e-5
"""δ where neither the setting nor the user names one."""


@dataclass(frozen=True)
class Release:
    """One Gaussian release: what moves by up to ``shift`` gets noise of standard deviation ``std``."""

    shift: float
    std: float

    def mu(self, rounds: int = 1) -> float:
        """``μ = √T · shift / std``; infinite without noise."""
        return math.inf if not self.std else math.sqrt(rounds) * self.shift / self.std

    def epsilon(self, delta: float, rounds: int = 1) -> float:
        """The smallest ε at δ after so many releases."""
        mu = self.mu(rounds)
        return math.inf if math.isinf(mu) else gaussian_epsilon(mu, delta)

    def delta(self, epsilon: float, rounds: int = 1) -> float:
        """δ at ε after so many releases."""
        mu = self.mu(rounds)
        return 1.0 if math.isinf(mu) else gaussian_delta(mu, epsilon)


def classical_std(sensitivity: float, epsilon: float, delta: float) -> float:
    """``s √(2 ln(1.25/δ)) / ε`` for any ε, as packages compute it; proved for ε < 1 only."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def short(value: float) -> str:
    """A number in a sentence."""
    return f"{value:.4g}"
