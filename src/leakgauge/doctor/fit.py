"""The doctor's fits: continuous settings of a set-up, by projection and Gauss-Newton."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.doctor.case import Case, Fit, nearest
from leakgauge.doctor.replay import distance
from leakgauge.doctor.setup import Setup

NEAR = 0.1
"""A residual from which the last digits of a learning rate are worth fitting."""


def fit_rate(case: Case, setup: Setup, rounds: int = 3) -> Fit:
    """The learning rate by projection: a change is nearly linear in it.

    Near a fit the numbers that people write come first: with kinks, a change is no smooth function of the rate.
    """
    best = _projected(case, setup, rounds)
    if best.residual < NEAR and not case.explains(best):
        best = nearest(best, _round_rate(case, best.setup))
    if best.residual < NEAR and not case.explains(best):
        best = nearest(best, _newton(case, best.setup, ("learning_rate",), rounds=4))
    return best


def refine(case: Case, setup: Setup) -> Fit:
    """Gauss-Newton on ever more continuous settings, until one set explains the update."""
    best = Fit(math.inf, setup)
    smooth = ("smoothing",) if case.replayer.smooths else ()
    for free in (("momentum",), ("weight_decay",), smooth, ("momentum", "weight_decay", *smooth)):
        if case.replayer.gradients > 2 * case.budget:
            break
        best = nearest(best, case.note(_newton(case, setup, ("learning_rate", *free))))
        if case.explains(best):
            break
    return best


def least_squares(columns: list[Tensor], target: Tensor) -> list[float]:
    """The coefficients with which columns come nearest to a target."""
    a = torch.stack(columns, 1)
    size = a.norm(dim=0).clamp(min=1e-300)
    solution = torch.linalg.lstsq(a / size, target.unsqueeze(1), driver="gelsd").solution.squeeze(1) / size
    return [float(v) for v in solution]


def _projected(case: Case, setup: Setup, rounds: int) -> Fit:
    observed = case.replayer.observed(setup)
    best = Fit(math.inf, setup)
    for _ in range(rounds):
        ours = case.replayer.update(setup)
        best = nearest(best, Fit(distance(ours, observed), setup))
        scale = float(ours @ observed / ours.square().sum().clamp(min=1e-300))
        if not (math.isfinite(scale) and scale > 0) or abs(scale - 1) < 1e-7:
            break
        setup = replace(setup, learning_rate=setup.learning_rate * min(max(scale, 0.1), 10.0))
    return best


def _round_rate(case: Case, setup: Setup) -> Fit:
    """The best of the round learning rates within a tenth."""
    rate, size = setup.learning_rate, setup.minibatch or case.replayer.batch
    believed = case.believed.learning_rate
    rates = [believed, believed * size, believed / size, *(float(f"{rate:.{digits}g}") for digits in (1, 2, 3))]
    near = [replace(setup, learning_rate=r) for r in dict.fromkeys(rates) if 0.9 < r / rate < 1.1]
    return nearest(*map(case.residual, near)) if near else Fit(math.inf, setup)


def _newton(case: Case, setup: Setup, free: tuple[str, ...], rounds: int = 8) -> Fit:
    observed = case.replayer.observed(setup)
    ours = case.replayer.update(setup)
    score = distance(ours, observed)
    for _ in range(rounds):
        slopes = [(case.replayer.update(_moved(setup, (name,), [_WIDTH[name]])) - ours) / _WIDTH[name] for name in free]
        step = least_squares(slopes, observed - ours)
        before = score
        for shrink in (1.0, 0.3, 0.1):
            trial = _moved(setup, free, [shrink * s for s in step])
            update = case.replayer.update(trial)
            if distance(update, observed) < score:
                setup, ours, score = trial, update, distance(update, observed)
                break
        if score > 0.9 * before or (score > 0.5 * before and case.explains(Fit(0.2 * score, setup))):
            break
    return Fit(score, setup)


_WIDTH = {"learning_rate": 1e-4, "momentum": 1e-4, "weight_decay": 1e-5, "smoothing": 1e-4}


def _moved(setup: Setup, names: tuple[str, ...], steps: list[float]) -> Setup:
    changed: dict[str, Any] = {}
    for name, step in zip(names, steps, strict=True):
        value = getattr(setup, name)
        if name == "learning_rate":  # on the logarithm
            changed[name] = value * math.exp(min(max(step, -1.5), 1.5))
        else:
            changed[name] = min(max(value + step, 0.0), 0.995 if name != "weight_decay" else math.inf)
    return replace(setup, **changed)
