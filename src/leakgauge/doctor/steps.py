"""The doctor's search over several steps: their number, minibatches and momentum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from leakgauge.doctor.case import Case, Fit
from leakgauge.doctor.fit import fit_rate, refine
from leakgauge.doctor.setup import Setup

MOST_STEPS = 24


def believed_steps(case: Case) -> Iterator[Fit]:
    """The believed steps and minibatches, with momentum, decay and smoothing fitted."""
    steps, minibatch = case.believed.local_steps, case.believed.minibatch
    if steps == 1:
        return
    for context in _promising(case)[:2]:
        for momentum in _momenta(case):
            fit = _fit_structure(case, context, steps, minibatch, momentum)
            if fit.residual < 0.3 and not case.explains(fit):
                fit = refine(case, fit.setup)
            yield fit
            if case.explains(fit):
                return


def several_steps(case: Case) -> Iterator[Fit]:
    """Structures by their residual at a fitted learning rate; the best are refined."""
    for (steps, minibatch), context, momentum in product(structures(case), _promising(case), _momenta(case)):
        if case.replayer.gradients > case.budget:
            break
        fit = _fit_structure(case, context, steps, minibatch, momentum)
        if case.explains(fit):
            yield fit
            return
    case.structures.sort(key=lambda fit: fit.residual)
    for fit in [fit for fit in case.structures if fit.residual < 0.5][:4]:
        refined = refine(case, fit.setup)
        yield refined
        if case.explains(refined):
            return


def _fit_structure(case: Case, context: Setup, steps: int, minibatch: int | None, momentum: float) -> Fit:
    rate = _per_step(context, steps, momentum)
    setup = replace(context, local_steps=steps, minibatch=minibatch, momentum=momentum, learning_rate=rate)
    fit = case.note(fit_rate(case, setup))
    case.structures.append(fit)
    return fit


def _momenta(case: Case) -> list[float]:
    return list(dict.fromkeys((case.believed.momentum, 0.0, 0.9)))


def _promising(case: Case) -> list[Setup]:
    """The modes and normalisations whose single step points best along the change."""
    if case.even:
        return []
    down = [fit for fit in case.fits if fit.setup.holds != "gradient" and fit.setup.sign > 0]
    steps = sorted(down, key=lambda fit: fit.residual)
    believed = case.believed
    plain = [
        replace(fit.setup, smoothing=believed.smoothing, weight_decay=believed.weight_decay, order=None)
        for fit in steps
        if fit.residual < min(0.8, steps[0].residual + 0.15)
    ]
    return list(dict.fromkeys(replace(setup, local_steps=1, minibatch=None) for setup in plain))[:3]


def structures(case: Case) -> list[tuple[int, int | None]]:
    """Numbers of steps and minibatches, the likely ones first."""
    size, counted, believed = case.replayer.batch, case.batches_counted, case.believed.local_steps
    widths = sorted((d for d in range(1, size) if size % d == 0), reverse=True)[:4]
    likely: list[tuple[int, int | None]] = [(2, None), (3, None)]
    likely += [(size // width, width) for width in widths]  # one pass over the batch
    likely += [(n, None) for n in (believed, 4, 5, 6, 8, 10) if n > 1]
    for width in widths:
        slices = size // width
        likely += [(n, width) for n in (2 * slices, 3 * slices, believed, *range(1, slices))]
    likely = [(n, width) for n, width in likely if n <= MOST_STEPS]
    if counted:
        likely = [(n, width) for n, width in likely if n == counted] or [(min(counted, MOST_STEPS), None)]
    return list(dict.fromkeys(likely))


def _per_step(context: Setup, steps: int, momentum: float) -> float:
    """The learning rate of each of several steps that together go as far as one."""
    total = sum((1 - momentum ** (k + 1)) / (1 - momentum) for k in range(steps))
    return context.learning_rate / total
