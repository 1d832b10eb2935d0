"""The mass of a von Mises-Fisher law in the cap that covers a share g of the sphere."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from leakgauge import guards
from leakgauge.defenses.update.vmf_math import uniform_cap
from leakgauge.special import Array, legendre

_FORMULA = "von Mises-Fisher ceiling"
_DROP = 45.0  # below exp(−45) of the peak nothing is counted; the result is rounded up by as much
_NODES, _PANELS = 32, 12


def vmf_success(guess: float, dim: int, concentration: float) -> float:
    """``P(⟨m, y⟩ ≥ c)`` under the noise, with c such that the uniform law gives ``g = guess``.

    The angle θ to the mean has density ``∝ sin^{p−2}θ exp(concentration (cos θ − 1))``, integrated by Gauss-Legendre
    between the points where it has fallen to e^{−45} of its peak. Rounded up, never below g.
    """
    p = guards.count(dim, "dim", _FORMULA, least=2)
    c = guards.non_negative(concentration, "concentration", _FORMULA)
    if guess in (0.0, 1.0):
        return guess

    def log_density(theta: Array) -> Array:
        sine = (p - 2) * np.log(np.sin(theta)) if p > 2 else 0.0
        return sine - 2 * c * np.sin(theta / 2) ** 2

    peak = _peak(p, c)
    low, high = _span(log_density, peak, p)
    edge = min(max(uniform_cap(p, guess), low), high)
    top = float(log_density(np.array(peak)))
    inside = _integral(lambda t: np.exp(log_density(t) - top), low, edge)
    outside = _integral(lambda t: np.exp(log_density(t) - top), edge, high)
    return min(1.0, max(guess, inside / (inside + outside) + 1e-13))


def _peak(p: int, c: float) -> float:
    """The most likely angle: ``(p − 2) cos θ = c sin² θ``."""
    d = (p - 2) + math.hypot(p - 2, 2 * c)
    return math.atan2(math.sqrt(2 * (p - 2) / d), 2 * c / d) if d > 0 else math.pi / 2


def _span(log_density: Callable[[Array], Array], peak: float, p: int) -> tuple[float, float]:
    """Where the density has fallen by e^{−45} on either side of its peak, or the ends of [0, π].

    For p > 2 the density vanishes at both ends, and 1e-9 of the way is close enough: the mass beyond is 1e-18.
    """
    least = float(log_density(np.array(peak))) - _DROP
    ends = []
    for end in (0.0, math.pi) if p == 2 else (1e-9 * peak, math.pi - 1e-9):
        near, far = peak, end
        if float(log_density(np.array(far))) < least:
            for _ in range(60):
                middle = (near + far) / 2
                near, far = (near, middle) if float(log_density(np.array(middle))) < least else (middle, far)
        ends.append(far)
    return ends[0], ends[1]


def _integral(f: Callable[[Array], Array], low: float, high: float) -> float:
    """Composite Gauss-Legendre: 12 panels of 32 nodes."""
    x, weights = legendre(_NODES)
    width = (high - low) / _PANELS
    starts = low + width * np.arange(_PANELS)
    return float((f(starts[:, None] + width * (x + 1) / 2) @ weights).sum() * width / 2)
