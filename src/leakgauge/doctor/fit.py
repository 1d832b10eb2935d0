"""The doctor's fits: continuous settings of a set-up, by projection and Gauss-Newton."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.doctor.replay import Replayer, Setup, distance

NEAR = 0.1
"""A residual from which the last digits of a learning rate are worth fitting."""

Scored = tuple[float, Setup]


@dataclass
class Fitting:
    """Fits of one client's evidence; ``budget`` counts gradients, ``fits`` keeps everything that was tried."""

    replayer: Replayer
    believed: Setup
    budget: int = 800
    fits: list[Scored] = field(default_factory=list)

    def within(self, residual: float, setup: Setup) -> bool:
        return residual <= self.replayer.tolerance(setup)

    def _kept(self, fit: Scored) -> Scored:
        self.fits.append(fit)
        return fit

    def fit_rate(self, setup: Setup, rounds: int = 3) -> Scored:
        """The learning rate by projection: a change is nearly linear in it.

        Near a fit the numbers that people write come first: with kinks, a change is no smooth function of the rate.
        """
        best = self._projected(setup, rounds)
        if best[0] < NEAR and not self.within(*best):
            best = min(best, self._written(best[1]), key=_score)
        if best[0] < NEAR and not self.within(*best):
            best = min(best, self._newton(best[1], ("learning_rate",), rounds=4), key=_score)
        return best

    def _projected(self, setup: Setup, rounds: int) -> Scored:
        observed = self.replayer.observed(setup)
        best: Scored = (math.inf, setup)
        for _ in range(rounds):
            ours = self.replayer.update(setup)
            best = min(best, (distance(ours, observed), setup), key=_score)
            scale = float(ours @ observed / ours.square().sum().clamp(min=1e-300))
            if not (math.isfinite(scale) and scale > 0) or abs(scale - 1) < 1e-7:
                break
            setup = replace(setup, learning_rate=setup.learning_rate * min(max(scale, 0.1), 10.0))
        return best

    def _written(self, setup: Setup) -> Scored:
        """The best of the round learning rates within a tenth."""
        rate, size = setup.learning_rate, setup.minibatch or self.replayer.batch
        given = self.believed.learning_rate
        rates = [given, given * size, given / size, *(float(f"{rate:.{digits}g}") for digits in (1, 2, 3))]
        tried = [replace(setup, learning_rate=r) for r in dict.fromkeys(rates) if 0.9 < r / rate < 1.1]
        return min(((self.replayer.residual(s), s) for s in tried), key=_score, default=(math.inf, setup))

    def _refined(self, setup: Setup) -> Scored:
        """Gauss-Newton on ever more continuous settings, until one set explains the update."""
        best: Scored = (math.inf, setup)
        smooth = ("smoothing",) if self.replayer.smooths else ()
        for free in (("momentum",), ("weight_decay",), smooth, ("momentum", "weight_decay", *smooth)):
            if self.replayer.gradients > 2 * self.budget:
                break
            best = min(best, self._kept(self._newton(setup, ("learning_rate", *free))), key=_score)
            if self.within(*best):
                break
        return best

    def _newton(self, setup: Setup, free: tuple[str, ...], rounds: int = 8) -> Scored:
        observed = self.replayer.observed(setup)
        ours = self.replayer.update(setup)
        score = distance(ours, observed)
        for _ in range(rounds):
            columns = []
            for name in free:
                moved, width = _nudged(setup, name)
                columns.append((self.replayer.update(moved) - ours) / width)
            step = least_squares(columns, observed - ours)
            before = score
            for shrink in (1.0, 0.3, 0.1):
                trial = _moved(setup, free, [shrink * s for s in step])
                made = self.replayer.update(trial)
                if distance(made, observed) < score:
                    setup, ours, score = trial, made, distance(made, observed)
                    break
            if score > 0.9 * before or (score > 0.5 * before and self.within(0.2 * score, setup)):
                break
        return score, setup


def _score(fit: Scored) -> float:
    return fit[0]


def least_squares(columns: list[Tensor], target: Tensor) -> list[float]:
    a = torch.stack(columns, 1)
    size = a.norm(dim=0).clamp(min=1e-300)
    found = torch.linalg.lstsq(a / size, target.unsqueeze(1), driver="gelsd").solution.squeeze(1) / size
    return [float(v) for v in found]


_STEPS = {"learning_rate": 1e-4, "momentum": 1e-4, "weight_decay": 1e-5, "smoothing": 1e-4}


def _nudged(setup: Setup, name: str) -> tuple[Setup, float]:
    width = _STEPS[name]
    return _moved(setup, (name,), [width]), width


def _moved(setup: Setup, names: tuple[str, ...], steps: list[float]) -> Setup:
    changed: dict[str, Any] = {}
    for name, step in zip(names, steps, strict=True):
        value = getattr(setup, name)
        if name == "learning_rate":  # on the logarithm
            changed[name] = value * math.exp(min(max(step, -1.5), 1.5))
        else:
            changed[name] = min(max(value + step, 0.0), 0.995 if name != "weight_decay" else math.inf)
    return replace(setup, **changed)
