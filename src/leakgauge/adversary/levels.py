"""A constant answer is one of many: take the mean level under the posterior instead of the one a solver began at.

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


def at_mean_level(problem: Problem, solution: Solution) -> Solution:
    """The solution; where its inputs are constant, at ``E[level | observed]``, every level as probable beforehand.

    That is the best constant guess by squared error: the middle of the box where the update says nothing, the most
    probable level where it says much. All other unknowns stay as found, and so does an answer with any structure:
    early in a search that may well be less probable than a constant record and yet nearer to the truth.
    """
    flat = rows(solution.unknowns[INPUTS])
    constant = (flat == flat[:, :1]).all(1) & solution.objective.isfinite()
    if not bool(constant.any()):
        return solution
    which = constant.nonzero().squeeze(1)
    unknowns = {name: value.clone() for name, value in solution.unknowns.items()}
    objective = solution.objective.clone()
    levels = torch.linspace(*problem.box[INPUTS], LEVELS).to(flat)
    tried = torch.stack([_objective_at(problem, unknowns, which, level.expand(len(which))) for level in levels])
    weights = (-tried.double()).nan_to_num(nan=-torch.inf).softmax(0)
    mean = (weights * levels.double().unsqueeze(1)).sum(0).to(flat)
    unknowns[INPUTS][which] = _constant(mean, unknowns[INPUTS][which])
    objective[which] = _objective_at(problem, unknowns, which, mean)
    evaluations = solution.evaluations + (LEVELS + 1) * len(which)
    return replace(solution, unknowns=unknowns, objective=objective, evaluations=evaluations)


def _objective_at(problem: Problem, unknowns: dict[str, Tensor], which: Tensor, levels: Tensor) -> Tensor:
    """The objective of some problems, the inputs of each at its own level."""
    point = {name: value[which] for name, value in unknowns.items()}
    point[INPUTS] = _constant(levels, point[INPUTS])
    with torch.enable_grad():  # an update is itself a gradient
        value = problem.evaluate({name: one.requires_grad_() for name, one in point.items()}, which)
    return -(value.likelihood + value.prior).detach()


def _constant(levels: Tensor, like: Tensor) -> Tensor:
    return levels.view(-1, *(1 for _ in like.shape[1:])).expand_as(like).clone()


__all__ = ["LEVELS", "at_mean_level"]
