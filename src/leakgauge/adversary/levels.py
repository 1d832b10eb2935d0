"""A constant answer is one of many: take the most probable level instead of the one a solver began at.

A flat start is a kink of total variation. Where an update says little, every step of a signed optimiser away from it
costs more prior than it gains likelihood, and the start itself would be the answer, at a level that nobody chose.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.adversary.solver import Problem, Solution
from leakgauge.adversary.unknowns import INPUTS
from leakgauge.updates.trees import rows

LEVELS = 11
"""So many constant records are tried, evenly spaced over the box; each costs one evaluation."""


def at_best_level(problem: Problem, solution: Solution) -> Solution:
    """The solution; where its inputs are constant, at the level of the highest log posterior among those tried.

    All other unknowns stay as found, and so does an answer with any structure: early in a search that may well be
    less probable than a constant record and yet nearer to the truth.
    """
    flat = rows(solution.unknowns[INPUTS])
    constant = (flat == flat[:, :1]).all(1) & solution.objective.isfinite()
    if not bool(constant.any()):
        return solution
    which = constant.nonzero().squeeze(1)
    unknowns = {name: value.clone() for name, value in solution.unknowns.items()}
    objective = solution.objective.clone()
    for level in torch.linspace(*problem.box[INPUTS], LEVELS).tolist():
        reached = _objective_at(problem, unknowns, which, level)
        better = which[reached < objective[which]]  # False for NaN
        unknowns[INPUTS][better] = level
        objective[which] = torch.minimum(objective[which], reached.nan_to_num(nan=torch.inf))
    evaluations = solution.evaluations + LEVELS * len(which)
    return replace(solution, unknowns=unknowns, objective=objective, evaluations=evaluations)


def _objective_at(problem: Problem, unknowns: dict[str, Tensor], which: Tensor, level: float) -> Tensor:
    """The objective of some problems, their inputs all at one level."""
    point = {name: value[which] for name, value in unknowns.items()}
    point[INPUTS] = torch.full_like(point[INPUTS], level)
    with torch.enable_grad():  # an update is itself a gradient
        value = problem.evaluate({name: one.requires_grad_() for name, one in point.items()}, which)
    return -(value.likelihood + value.prior).detach()


__all__ = ["LEVELS", "at_best_level"]
