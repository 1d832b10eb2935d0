"""The doctor's search: from cheap invariants of one step to several steps, minibatches, orders and momentum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leakgauge.doctor.case import Case, Fit, nearest
from leakgauge.doctor.one_step import exchanged_names, single_steps
from leakgauge.doctor.orders import orders
from leakgauge.doctor.setup import Setup
from leakgauge.doctor.steps import believed_steps, several_steps

STAGES = (single_steps, exchanged_names, believed_steps, several_steps, orders)
"""From cheap to dear; each yields fits, and the first that explains the update ends the search."""


def search(case: Case) -> Fit:
    """The set-up that replays the evidence with the fewest changes, otherwise the nearest one."""
    believed = case.residual(case.believed)
    if case.unreadable or case.explains(believed):
        return believed
    case.note(believed)
    for stage in STAGES:
        good = [fit for fit in stage(case) if case.explains(fit)]
        if good:
            return _simplest(case, good)
    return nearest(*case.fits)


def _simplest(case: Case, good: list[Fit]) -> Fit:
    snapped = [snap(case, fit.setup) for fit in sorted(good, key=lambda fit: fit.residual)[:6]]
    return min(snapped, key=lambda fit: (len(fit.setup.differs(case.believed)), fit.residual))


def snap(case: Case, setup: Setup) -> Fit:
    """From fitted numbers to those that people write: the believed or a round value wherever that replays as well."""
    setup = _believed_reduction(case, setup)
    for name in ("smoothing", "weight_decay", "momentum", "learning_rate", "order"):
        for value in _rounder(case, setup, name):
            trial = replace(setup, **{name: value})
            if trial != setup and case.explains(case.residual(trial)):
                setup = trial
                break
    return case.residual(setup)


def _believed_reduction(case: Case, setup: Setup) -> Setup:
    """A mean or a sum, whichever has the believed learning rate."""
    if setup.holds == "gradient" or not setup.learning_rate:
        return setup
    for one in (setup, setup.other_reduction(case.replayer.batch)):
        if abs(one.learning_rate / case.believed.learning_rate - 1) < 2e-3:
            return one
    return setup


def _rounder(case: Case, setup: Setup, name: str) -> list[Any]:
    if name == "order":
        return [None]
    value, believed = getattr(setup, name), getattr(case.believed, name)
    rounded = [float(f"{value:.{digits}g}") for digits in (1, 2, 3)] if value else []
    valid = [v for v in rounded if v > 0 and (name not in ("momentum", "smoothing") or v < 1)]
    return [believed, *([0.0] if name != "learning_rate" else []), *valid]
