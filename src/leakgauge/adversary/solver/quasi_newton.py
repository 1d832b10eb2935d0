"""L-BFGS with a strong-Wolfe line search, for N problems that each are at their own place in it.

Every evaluation is one batched call at one trial point per problem. A problem that accepted its trial starts its
next line search at once; its neighbours may still be bracketing or zooming.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.curvature import Curvature
from leakgauge.adversary.solver.line_search import LineSearch, Trial
from leakgauge.adversary.solver.problem import Problem, Solution, Solver
from leakgauge.adversary.solver.rows import Rows
from leakgauge.adversary.solver.schedules import Constant
from leakgauge.adversary.solver.watch import Watch, guard_stops
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.types import Progress


@dataclass(frozen=True)
class State(Rows):
    """Every problem's point with objective and gradient, its direction with the slope along it, and its search.

    ``stuck`` counts the searches in a row that found no lower point.
    """

    point: Tensor
    value: Tensor
    gradient: Tensor
    direction: Tensor
    slope: Tensor
    search: LineSearch
    curvature: Curvature
    stuck: Tensor


@register("solver", "lbfgs")
@dataclass(frozen=True, repr=False)
class Lbfgs(Solver):
    """Limited-memory BFGS; ``steps`` counts evaluations, line search included.

    The step satisfies ``f(t) ≤ f(0) + c₁ t f'(0)`` and ``|f'(t)| ≤ c₂ |f'(0)|``. Unknowns are not boxed: a
    projection would break the line search. For smooth networks (sigmoid); with ReLU and total variation a signed
    Adam does better. A problem ends when its gradient falls below ``gradient_tolerance`` or, after ``searches``
    trials, no lower point is found along the gradient itself.

    References:
        Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5, 3.6 and 7.4.
    """

    steps: int = 1000
    lr: float = 1.0
    history: int = 50
    searches: int = 25
    wolfe: tuple[float, float] = (1e-4, 0.9)
    gradient_tolerance: float = 1e-12
    patience: int | None = None
    tolerance: float = 1e-4
    target: float | None = None

    def __post_init__(self) -> None:
        with guards.together():
            guards.count(self.steps, "steps", "lbfgs")
            guards.positive(self.lr, "lr", "lbfgs")
            guards.count(self.history, "history", "lbfgs")
            guards.count(self.searches, "searches", "lbfgs")
            paired = guards.numbers(self.wolfe, "wolfe", "lbfgs", "(1e-4, 0.9)", length=2, low=0.0, high=1.0)
            if paired and self.wolfe[0] >= self.wolfe[1]:
                what = f"wolfe must be 0 < c1 < c2 < 1, got {self.wolfe}"
                guards.refuse(DomainError(what, where="lbfgs", remedy="say wolfe=(1e-4, 0.9)"))
            guards.non_negative(self.gradient_tolerance, "gradient_tolerance", "lbfgs")
            guard_stops(self.patience, self.tolerance, self.target, "lbfgs")

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        if not isinstance(problem.anneal, Constant):
            raise DomainError(
                f"anneal={problem.anneal!r} changes the objective between two trials of a line search",
                where="lbfgs",
                remedy="use adam() with it, or leave anneal out",
            )
        point = problem.flat(problem.start).clone()
        watch = Watch(problem, point, self.steps, self.patience, self.tolerance, self.target, progress)
        state = self._begin(problem, watch, point)
        for step in range(1, self.steps):
            if not len(state.point):
                break
            trial = state.point + state.search.step.unsqueeze(1) * state.direction
            value, gradient = problem.slope(trial, watch.running, step, self.steps)
            objective = -(value.likelihood + value.prior)
            keep = watch.see(step, trial, value, gradient, forgive=True)
            if keep is not None:
                state, objective, gradient = state.at(keep), objective[keep], gradient[keep]
            state = self._release(self._advance(state, objective.nan_to_num(nan=torch.inf), gradient), watch)
        return watch.solution()

    def _begin(self, problem: Problem, watch: Watch, point: Tensor) -> State:
        value, gradient = problem.slope(point, watch.running, 0, self.steps)
        keep = watch.see(0, point, value, gradient)
        objective = -(value.likelihood + value.prior)
        if keep is not None:
            point, objective, gradient = point[keep], objective[keep], gradient[keep]
        slope = -gradient.square().sum(1)
        search = LineSearch.begin(self._first_step(gradient), objective, slope, gradient)
        curvature = Curvature.empty(point, self.history)
        return State(point, objective, gradient, -gradient, slope, search, curvature, torch.zeros_like(search.tries))

    def _first_step(self, gradient: Tensor) -> Tensor:
        """Along the gradient nothing is known of the right length: at most one in L1."""
        length = gradient.abs().sum(1).clamp(min=torch.finfo(gradient.dtype).tiny)
        return self.lr * (1 / length).clamp(max=1.0)

    def _advance(self, state: State, objective: Tensor, gradient: Tensor) -> State:
        """One trial of every problem: accept it, or go on searching; after too many, take the best or start anew."""
        trial = Trial(state.search.step, objective, (gradient * state.direction).sum(1))
        search, accepted = state.search.tried(trial, gradient, state.value, state.slope, self.wolfe)
        state = replace(state, search=search)
        over = ~accepted & (search.tries >= self.searches)
        lower = over & (search.low.value < state.value) & (search.low.step > 0)
        taken = search.low.where(accepted, trial)
        state = self._accept(
            state, accepted | lower, taken, torch.where(accepted.unsqueeze(1), gradient, search.gradient)
        )
        return self._restart(state, over & ~lower)

    def _accept(self, state: State, which: Tensor, trial: Trial, gradient: Tensor) -> State:
        if not bool(which.any()):
            return state
        column = which.unsqueeze(1)
        moved = torch.where(column, trial.step.unsqueeze(1) * state.direction, 0.0)
        change = torch.where(column, gradient - state.gradient, 0.0)
        square = change.square().sum(1).clamp(min=torch.finfo(change.dtype).tiny)
        rows = (which & ((moved * change).sum(1) > 1e-10 * square)).nonzero().squeeze(1)
        if len(rows):
            state.curvature.push(rows, moved[rows], change[rows])
        state = replace(
            state,
            point=state.point + moved,
            gradient=torch.where(column, gradient, state.gradient),
            value=torch.where(which, trial.value, state.value),
            stuck=torch.where(which, 0, state.stuck),
        )
        direction = -state.curvature.solve(state.gradient)
        return self._turn(state, which, direction, torch.full_like(state.slope, self.lr))

    def _restart(self, state: State, which: Tensor) -> State:
        """The curvature misled these: forget it, and follow the gradient."""
        if not bool(which.any()):
            return state
        state.curvature.clear(which.nonzero().squeeze(1))
        state = replace(state, stuck=torch.where(which, state.stuck + 1, state.stuck))
        return self._turn(state, which, -state.gradient, self._first_step(state.gradient))

    def _turn(self, state: State, which: Tensor, direction: Tensor, step: Tensor) -> State:
        """A new direction and an empty bracket for ``which``; the gradient's where the new one does not descend."""
        slope = (direction * state.gradient).sum(1)
        downhill = slope < 0
        direction = torch.where(downhill.unsqueeze(1), direction, -state.gradient)
        slope = torch.where(downhill, slope, -state.gradient.square().sum(1))
        return replace(
            state,
            direction=torch.where(which.unsqueeze(1), direction, state.direction),
            slope=torch.where(which, slope, state.slope),
            search=state.search.where(which, LineSearch.begin(step, state.value, slope, state.gradient)),
        )

    def _release(self, state: State, watch: Watch) -> State:
        """Let go of problems at a stationary point."""
        flat = (state.gradient.abs().amax(1) <= self.gradient_tolerance) | (state.stuck > 1)
        if not bool(flat.any()):
            return state
        watch.leave(flat, "plateau")
        return state.at(~flat)
