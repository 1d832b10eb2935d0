"""Under a defense the update is blurred: which single change of the settings would fit it better than the belief?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from scipy.optimize import minimize_scalar
from torch import Tensor

from leakgauge.doctor.case import Case
from leakgauge.doctor.defended import Defended
from leakgauge.doctor.law import DRAWS, LEVEL, ReleaseLaw
from leakgauge.doctor.names import equal_pairs, nearest_names
from leakgauge.doctor.one_step import contexts
from leakgauge.doctor.orders import reorderings
from leakgauge.doctor.setup import Setup
from leakgauge.doctor.steps import structures

GAIN = 25.0
"""What a rival must gain in misfit: of a rival that is no better, ``χ²₁`` exceeds it once in 1.7 million."""
ALIKE = 4.0
"""Misfits that differ by less fit alike: two standard deviations."""
MOST_CHANGES = 3
COMMON_DRAWS = 16
EVERYTHING = ("everything",)
"""Settings that a drowned update hides: it shows its noise and no recipe."""
RATES = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
FAMILIES: dict[str, tuple[float, ...]] = {
    "smoothing": (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5),
    "weight_decay": (0.0, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2),
    "momentum": (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99),
}


class Rival(NamedTuple):
    """Settings, and by how much they miss the update."""

    misfit: float
    setup: Setup


class Examined(NamedTuple):
    """What one defense says of an update: the settings that fit best, and how likely it is under them."""

    setup: Setup
    p: float
    residual: float
    expected: float
    """The residuals that our own client has under these settings: the largest of the draws."""
    misfit: float
    changes: tuple[str, ...]
    """The settings in which they differ from the believed ones."""
    alike: tuple[tuple[str, ...], ...]
    """Changes that fit as well as the one that was chosen, the chosen one first."""
    hidden: tuple[str, ...] = ()
    """Settings that could be others without a trace."""

    @property
    def fits(self) -> bool:
        return self.p > LEVEL


def examined(case: Case, defended: Defended) -> Examined:
    """The believed settings if the law of the defense accepts them and no rival is better; else the best rival's.

    A test of all entries sees a wrong recipe only where it moves the update by as much as the noise does; against a
    given rival only the direction counts in which the two differ, and 25 of misfit are five standard deviations there.
    """
    setup = case.believed
    law = law_of(defended, setup)
    if law.p(defended.observed(setup)) <= LEVEL:
        setup, law = _another_reading(case, defended) or (setup, law)
    alike: list[tuple[str, ...]] = []
    for _ in range(MOST_CHANGES):
        better = _better(case, defended, law, setup)
        if not better:
            break
        alike += [tuple(one.text(*one.differs(setup)) for one in better)] if len(better) > 1 else []
        setup, law = better[0], law_of(defended, better[0])
    observed = defended.observed(setup)
    size = float(observed.norm())
    off = [float((row - law.mean).norm()) / max(size, 1e-300) for row in (observed, *law.fresh)]
    p, misfit = law.p(observed), float(Blur.of(defended, setup).misfit(observed))
    changes = setup.differs(case.believed)
    return Examined(
        setup,
        p,
        off[0],
        max(off[1:]),
        misfit,
        changes,
        tuple(alike),
        _hidden(case, defended, law, setup) if p > LEVEL else (),
    )


def accepts(case: Case, defended: Defended) -> bool:
    """Whether the law of the defense accepts the update under the believed settings."""
    return law_of(defended, case.believed).p(defended.observed(case.believed)) > LEVEL


def law_of(defended: Defended, setup: Setup) -> ReleaseLaw:
    """The law of our client's releases under a set-up."""
    return ReleaseLaw(defended.released(setup, range(DRAWS)), defended.rounding(setup), defended.tensors)


def _another_reading(case: Case, defended: Defended) -> tuple[Setup, ReleaseLaw] | None:
    """The believed settings, where the files hold something else than we believe."""
    believed = case.believed
    readings = [
        replace(believed, holds=holds) for holds in ("weights", "change", "gradient") if holds != believed.holds
    ]
    if believed.holds == "weights":
        readings.append(replace(believed, swapped=True))
        names = nearest_names(case.replayer)
        readings += [replace(believed, names=names, renamed="after")] if names else []
    for setup in readings:
        if (setup.holds != "gradient" or setup.local_steps == 1) and defended.runs(setup):
            law = law_of(defended, setup)
            if law.p(defended.observed(setup)) > LEVEL:
                return setup, law
    return None


class Blur(NamedTuple):
    """Mean and spread of each entry of a release, from the same few draws for every set-up."""

    mean: Tensor
    spread: Tensor

    @classmethod
    def of(cls, defended: Defended, setup: Setup, *, silent: bool = False) -> Blur:
        known = defended.moments
        if (setup, silent) not in known:
            rows = defended.released(setup, range(COMMON_DRAWS), silent=silent)
            known[setup, silent] = rows.mean(0), (rows.var(0) + defended.rounding(setup) ** 2).sqrt()
        return cls(*known[setup, silent])

    def misfit(self, rows: Tensor) -> Tensor:
        """``Σ ((o − mean) / spread)² + 2 log spread`` of rows ``[…, entries]``: −2 log likelihood, if Gaussian."""
        return (((rows - self.mean) / self.spread).square() + 2 * self.spread.log()).sum(-1)


def _better(case: Case, defended: Defended, law: ReleaseLaw, setup: Setup) -> list[Setup]:
    """The change of one setting that fits much better, the plainest of those that fit alike; then changes of others."""
    observed, base = defended.observed(setup), Blur.of(defended, setup)
    start = float(base.misfit(observed))

    def rival(one: Setup) -> Rival:
        misfit = float(Blur.of(defended, one).misfit(observed))
        return Rival(misfit if math.isfinite(misfit) else math.inf, one)

    rivals = [rival(one) for one in _changes(case, defended, setup)]
    for name in _families(case, setup):
        rivals += _family(case, rival, setup, name, start - GAIN)
    least = min((one.misfit for one in rivals), default=math.inf)
    alike = {one.setup.differs(setup): one for one in reversed(rivals) if one.misfit <= least + ALIKE}
    best = next((one for one in rivals if one.misfit <= least + ALIKE), None)
    if best is None:
        return []
    other = Blur.of(defended, best.setup)
    chance = float((base.misfit(law.fresh) - other.misfit(law.fresh)).max())
    if start - best.misfit <= max(GAIN, 1.5 * chance):
        return []
    return list(dict.fromkeys([best.setup, *(one.setup for one in reversed(alike.values()))]))


def _changes(case: Case, defended: Defended, setup: Setup) -> Iterator[Setup]:
    """Every set-up that differs in one setting that is no number on a scale."""
    size = case.replayer.batch
    every: list[Setup] = []
    if (setup.minibatch or size) > 1:
        other = "sum" if setup.reduction == "mean" else "mean"
        every.append(replace(setup, reduction=other))  # type: ignore[arg-type]
    every += [one for one in contexts(case, setup) if one != setup]
    every.append(replace(setup, sign=-setup.sign))
    if setup.holds != "gradient":
        if setup.local_steps == 1:
            every.append(replace(setup, shares="change" if setup.shares == "gradient" else "gradient"))
        for steps, minibatch in structures(case):
            every.append(replace(setup, local_steps=steps, minibatch=minibatch, shares="change"))
    if setup.minibatch is not None:
        every += [replace(setup, order=order) for order in reorderings(size, setup.minibatch)]
    every += [replace(setup, names=((a, b), (b, a)), renamed="both") for a, b in equal_pairs(case.replayer)[:40]]
    yield from (one for one in dict.fromkeys(every) if one != setup and defended.runs(one))


def _families(case: Case, setup: Setup) -> Iterator[str]:
    """The settings on a scale that make a difference."""
    if setup.holds != "gradient":
        yield "learning_rate"
        yield "weight_decay"
        if setup.local_steps > 1:
            yield "momentum"
    if case.replayer.smooths:
        yield "smoothing"


def _family(case: Case, rival: Callable[[Setup], Rival], setup: Setup, name: str, enough: float) -> list[Rival]:
    """The best conventional value of a setting, and where that fits well enough the best near it, rounded."""

    def at(value: float) -> Rival:
        return rival(_with(setup, name, value))

    here = float(getattr(setup, name))
    values = list(FAMILIES.get(name, ()))
    if name == "learning_rate":
        size = setup.minibatch or case.replayer.batch
        values = sorted({here * factor for factor in (*RATES, size, 1 / size)})
    best = min((at(value) for value in values if value != here), key=lambda one: one.misfit)
    if best.misfit > enough:
        return [best]
    place = values.index(getattr(best.setup, name))
    ends = values[max(place - 1, 0)], values[min(place + 1, len(values) - 1)]
    nearest = minimize_scalar(lambda v: at(float(v)).misfit, bounds=ends, options={"xatol": 1e-6 * ends[1]})
    refined = float(nearest.x)
    rounded = dict.fromkeys(float(f"{refined:.{digits}g}") for digits in (1, 2, 3, 4))
    return [best, *(at(value) for value in rounded if value != here), at(refined)]


def _with(setup: Setup, name: str, value: float) -> Setup:
    changed: dict[str, Any] = {name: value}
    return replace(setup, **changed)


def _hidden(case: Case, defended: Defended, law: ReleaseLaw, setup: Setup) -> tuple[str, ...]:
    """Settings that could be others, by as much as is usual, and would leave no trace in such an update."""
    usual: dict[str, float] = {"learning_rate": 1.1 * setup.learning_rate, "smoothing": 0.1, "weight_decay": 5e-3}
    tried: dict[str, list[Setup]] = {}
    for name in _families(case, setup):
        if name in usual and getattr(setup, name) != usual[name]:
            tried[name] = [_with(setup, name, usual[name])]
    for one in _changes(case, defended, setup):
        changed = one.differs(setup)
        if len(changed) == 1:
            tried.setdefault(changed[0], []).append(one)
    base = float(Blur.of(defended, setup).misfit(law.fresh).mean())

    def traceless(other: Blur) -> bool:
        return float(other.misfit(law.fresh).mean()) - base < GAIN

    if traceless(Blur.of(defended, setup, silent=True)):
        return EVERYTHING
    return tuple(name for name, others in tried.items() if any(traceless(Blur.of(defended, one)) for one in others))
