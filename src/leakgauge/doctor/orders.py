"""The doctor's search for the order in which the examples were used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

from leakgauge.doctor.case import Case, Fit, nearest
from leakgauge.doctor.fit import fit_rate
from leakgauge.doctor.setup import Setup

MOST_ORDERS = 130


def orders(case: Case) -> Iterator[Fit]:
    """The order in which minibatches were used, for the believed structure and the nearest ones."""
    believed = (case.believed.local_steps, case.believed.minibatch)
    split = [fit.setup for fit in case.structures if fit.setup.minibatch is not None and fit.residual < 0.9]
    split.sort(key=lambda s: (s.local_steps, s.minibatch) != believed)  # stable: the others stay by residual
    budget = case.budget + case.replayer.gradients  # of its own: the stages before may have spent theirs
    tried: set[tuple[int, int | None]] = set()
    for setup in split:
        structure = (setup.local_steps, setup.minibatch)
        if structure in tried or len(tried) >= 3 or case.replayer.gradients > budget:
            continue
        tried.add(structure)
        fit = case.note(_best_order(case, setup, budget))
        yield fit
        if case.explains(fit):
            return


def _best_order(case: Case, setup: Setup, budget: int) -> Fit:
    size, width = case.replayer.batch, setup.minibatch or case.replayer.batch
    count = math.factorial(size) // math.factorial(width) ** (size // width)
    best = fit_rate(case, setup)
    for order in reorderings(size, width):
        best = nearest(best, fit_rate(case, replace(setup, order=order)))
        if case.explains(best):
            return best
    return best if count <= MOST_ORDERS else _swapped(case, best, width, budget)


def _swapped(case: Case, best: Fit, width: int, budget: int) -> Fit:
    """Exchange two examples of different minibatches, as long as that helps."""
    size = case.replayer.batch
    for _ in range(size):
        start, order = best.residual, best.setup.order or tuple(range(size))
        for i, j in combinations(range(size), 2):
            if i // width == j // width or case.replayer.gradients > budget:
                continue
            places = list(order)
            places[i], places[j] = places[j], places[i]
            best = nearest(best, fit_rate(case, replace(best.setup, order=tuple(places))))
        if case.explains(best) or best.residual >= start:
            break
    return best


def reorderings(size: int, width: int) -> list[tuple[int, ...]]:
    """Every way to use the examples in consecutive minibatches, each in any order; where many, only backwards."""
    if math.factorial(size) // math.factorial(width) ** (size // width) > MOST_ORDERS:
        return [tuple(range(size))[::-1]]
    return [
        order
        for order in permutations(range(size))
        if all(list(order[i : i + width]) == sorted(order[i : i + width]) for i in range(0, size, width))
    ]
