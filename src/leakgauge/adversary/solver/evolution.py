"""CMA-ES: a search without gradients, for few unknowns such as the codes of a generator."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.problem import Problem, Solution, Solver, Value
from leakgauge.adversary.solver.watch import Watch
from leakgauge.errors import DomainError, MissingExtraError
from leakgauge.expr import register
from leakgauge.seeds import seed_of
from leakgauge.types import Progress

MOST = 2000
"""Unknowns of one problem beyond which its covariance matrix is no longer worth having."""


@register("solver", "cma")
@dataclass(frozen=True, repr=False)
class CmaEs(Solver):
    """Covariance matrix adaptation: ``steps`` generations of a ``population`` each, begun with deviation ``sigma``.

    One strategy per problem, from the package ``cma`` (``pip install 'leakgauge[cma]'``); the populations of all
    problems are evaluated together. It follows no gradient, so that it crosses valleys that stop Adam, and needs many
    more evaluations: for codes of tens of numbers, not for pixels. By default ``4 + ⌊3 log D⌋`` points a generation.

    References:
        Hansen, The CMA Evolution Strategy: A Tutorial, 2016. https://arxiv.org/abs/1604.00772
    """

    sigma: float = 1.0
    steps: int = 200
    population: int | None = None

    def __post_init__(self) -> None:
        with guards.together():
            guards.positive(self.sigma, "sigma", "cma")
            guards.count(self.steps, "steps", "cma")
            if self.population is not None:
                guards.count(self.population, "population", "cma", least=2)

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        point = problem.flat(problem.start).clone()
        if point.shape[1] > MOST:
            raise DomainError(
                f"{point.shape[1]} unknowns are too many for a covariance matrix",
                where=repr(self),
                remedy="search the codes of a generator, or use adam()",
            )
        low, high = problem.bounds()
        watch = Watch(problem, point, self.steps, None, 0.0, None, progress)
        strategies = [self._strategy(start, seed) for start, seed in zip(point, problem.seeds, strict=True)]
        size = int(strategies[0].popsize)
        for step in range(self.steps):
            running = watch.running
            if not len(running):
                break
            asked = [np.stack(strategies[i].ask()) for i in running.tolist()]
            points = torch.clamp(torch.from_numpy(np.concatenate(asked)).to(point), low, high)
            with torch.enable_grad():  # the update of a candidate is a gradient itself
                raw = problem.evaluate(problem.tree(points), running.repeat_interleave(size))
            value = Value(raw.likelihood.detach(), raw.prior.detach())
            objective = -(value.likelihood + value.prior).view(len(running), size).double()
            objective = objective.nan_to_num(nan=math.inf).clamp(max=1e300)
            for place, i in enumerate(running.tolist()):
                strategies[i].tell(list(asked[place]), objective[place].tolist())
            best = torch.arange(len(running), device=point.device) * size + objective.argmin(1)
            won = Value(value.likelihood[best], value.prior[best])
            watch.see(step, points[best], won, torch.zeros_like(points[best]), forgive=True)
            watch.leave(torch.tensor([bool(strategies[i].stop()) for i in running.tolist()]), "plateau")
        solution = watch.solution()
        return replace(solution, evaluations=solution.evaluations * size)

    def _strategy(self, start: Tensor, seed: int) -> Any:
        """A strategy with a generator of its own: the package's global one would tie problems to their neighbours."""
        numbers = np.random.default_rng(seed_of(seed, 6))
        options = {"verbose": -9, "seed": math.nan, "randn": lambda *shape: numbers.standard_normal(shape)}
        if self.population is not None:
            options["popsize"] = self.population
        return _package().CMAEvolutionStrategy(start.detach().double().cpu().numpy(), self.sigma, options)


def _package() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without matplotlib it cannot plot, which nobody asked for
            import cma
    except ImportError:
        raise MissingExtraError(
            "the package cma is not installed", where="cma", remedy="type: pip install 'leakgauge[cma]'"
        ) from None
    return cma
