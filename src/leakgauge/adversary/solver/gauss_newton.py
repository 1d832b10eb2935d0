"""Gauss-Newton with Levenberg-Marquardt damping, by products with the Jacobian of the update, for N problems at once.

The update ``u(x)`` is linearised, never the whole objective: ``−log p(o | u(x))`` has the curvature ``Jᵀ L J`` with L
that of the likelihood in u, and ``Jv`` and ``Jᵀw`` come out of one graph per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.problem import Composite, Problem, Solution, Solver, Value
from leakgauge.adversary.solver.schedules import Constant
from leakgauge.adversary.solver.watch import Watch, guard_stops
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.types import Progress

Product = Callable[[Tensor], Tensor]
GOOD, POOR = 0.75, 0.25
"""Ratios of actual and predicted decrease beyond which the damping falls, or rises."""


@register("solver", "gauss_newton")
@dataclass(frozen=True, repr=False)
class GaussNewton(Solver):
    """Solve ``(Jᵀ L J + P + λ I) δ = −g`` and move by δ, ``steps`` times.

    J is the Jacobian of the update, L the curvature of the likelihood in it, P that of the prior. λ falls where the
    objective falls as predicted, and rises where it does not; a step that does not lower it is not taken. The system is
    solved by at most ``inner`` steps of conjugate gradients (two products with J each), or until its residual is
    ``forcing`` times the gradient; a direction of negative curvature ends them. With ``box`` coordinates at their bound
    stay there as long as the gradient points outward. For few unknowns and smooth networks: every update is
    formed. A problem ends when no damping finds a lower point, or as :class:`~leakgauge.adversary.solver.Adam` does.

    References:
        Nocedal and Wright, Numerical Optimization, 2006, chapters 7.1 and 10.3.
    """

    steps: int = 20
    inner: int = 100
    damping: float = 1e-3
    forcing: float = 1e-2
    box: bool = True
    patience: int | None = None
    tolerance: float = 1e-4
    target: float | None = None

    def __post_init__(self) -> None:
        with guards.together():
            guards.count(self.steps, "steps", "gauss_newton")
            guards.count(self.inner, "inner", "gauss_newton")
            guards.positive(self.damping, "damping", "gauss_newton")
            guards.positive(self.forcing, "forcing", "gauss_newton")
            guards.flag(self.box, "box", "gauss_newton")
            guard_stops(self.patience, self.tolerance, self.target, "gauss_newton")

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        composite = self._composite(problem)
        point = problem.flat(problem.start).clone()
        low, high = problem.bounds()
        watch = Watch(problem, point, self.steps, self.patience, self.tolerance, self.target, progress)
        damping = point.new_full((len(point),), -1.0)  # not known before the first curvature
        for step in range(self.steps):
            model = Linearised.at(problem, composite, point, watch.running)
            keep = watch.see(step, point, model.value, model.gradient) if step == 0 else None
            if keep is not None:  # what is not finite at the start stays out
                point, damping = point[keep], damping[keep]
                if not len(point):
                    break
                model = Linearised.at(problem, composite, point, watch.running)
            gradient = model.gradient
            free = self._free(point, gradient, low, high)
            gradient = gradient * free
            scale = _curvature(model, gradient)
            damping = torch.where(damping < 0, self.damping * scale, damping)
            move, predicted, products = _conjugate_gradients(
                lambda v, m=model, f=free, d=damping: f * m.product(v) + d.unsqueeze(1) * v,  # type: ignore[misc]
                gradient,
                self.inner,
                self.forcing,
            )
            trial = point + move
            if self.box:
                trial = torch.clamp(trial, low, high)
            value = _evaluated(problem, trial, watch.running)
            watch.evaluations += (1 + 2 * products) * len(point)
            objective = -(value.likelihood + value.prior)
            gain = (model.objective - objective).nan_to_num(nan=-torch.inf)
            better = gain > 0
            ratio = gain / predicted.clamp(min=torch.finfo(gain.dtype).tiny)
            damping = damping * torch.where(ratio > GOOD, 0.1, torch.where(ratio < POOR, 10.0, 1.0))
            keep = watch.see(step + 1, trial, value, trial, forgive=True)
            point = torch.where(better.unsqueeze(1), trial, point)
            if keep is not None:
                point, damping, scale = point[keep], damping[keep], scale[keep]
            stuck = (damping > 1e8 * scale) | (scale == 0)
            if bool(stuck.any()):
                watch.leave(stuck, "plateau")
                point, damping = point[~stuck], damping[~stuck]
            if not len(point):
                break
        return watch.solution()

    def _composite(self, problem: Problem) -> Composite:
        if problem.composite is None or problem.ball is not None or not isinstance(problem.anneal, Constant):
            raise no_linearisation()
        return problem.composite

    def _free(self, point: Tensor, gradient: Tensor, low: Tensor, high: Tensor) -> Tensor:
        if not self.box:
            return torch.ones_like(point)
        outward = ((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0))
        return (~outward).to(point)


def no_linearisation() -> DomainError:
    return DomainError(
        "there is no update to linearise here: a ball, or a likelihood that is annealed",
        where="gauss_newton",
        remedy="use lbfgs() or adam(), or leave ball and anneal out",
    )


@dataclass(frozen=True)
class Linearised:
    """The objective at N points ``[N, D]``, with its gradient and products with its Gauss-Newton curvature."""

    value: Value
    gradient: Tensor
    product: Product

    @property
    def objective(self) -> Tensor:
        return -(self.value.likelihood + self.value.prior)

    @classmethod
    def at(cls, problem: Problem, composite: Composite, point: Tensor, which: Tensor) -> Linearised:
        with torch.enable_grad():
            live = point.detach().requires_grad_()
            predicted = composite.predict(problem.tree(live), which)
            updates = [one.detach().requires_grad_() for one in predicted]
            likelihood = composite.judge(updates, which)
            slopes = _slopes(-likelihood.sum(), updates)
            prior = composite.prior(problem.tree(live), which)
            (prior_slope,) = _slopes(-prior.sum(), [live])
            # linear in ``weights``: its derivative in them, times v, is Jv
            weights = [torch.zeros_like(one).requires_grad_() for one in predicted]
            (back,) = torch.autograd.grad(predicted, live, weights, create_graph=True)

        def transposed(values: Sequence[Tensor]) -> Tensor:
            (product,) = torch.autograd.grad(predicted, live, list(values), retain_graph=True)
            return product

        def product(v: Tensor) -> Tensor:
            forward = torch.autograd.grad(back, weights, v, retain_graph=True)
            return transposed(_curved(slopes, updates, forward)) + _curved([prior_slope], [live], [v])[0]

        gradient = transposed([slope.detach() for slope in slopes]) + prior_slope.detach()
        return cls(Value(likelihood.detach(), prior.detach()), gradient, product)


def _slopes(value: Tensor, at: Sequence[Tensor]) -> list[Tensor]:
    """The gradient, differentiable itself; zero where the value does not depend on it."""
    if not value.requires_grad:
        return [torch.zeros_like(one) for one in at]
    slopes = torch.autograd.grad(value, list(at), create_graph=True, allow_unused=True)
    return [torch.zeros_like(one) if slope is None else slope for slope, one in zip(slopes, at, strict=True)]


def _curved(slopes: Sequence[Tensor], at: Sequence[Tensor], v: Sequence[Tensor]) -> list[Tensor]:
    """``L v``: the derivative of the gradient along v; L is symmetric."""
    live = [(slope, one) for slope, one in zip(slopes, v, strict=True) if slope.requires_grad]
    if not live:
        return [torch.zeros_like(one) for one in at]
    products = torch.autograd.grad(
        [slope for slope, _ in live], list(at), [one for _, one in live], retain_graph=True, allow_unused=True
    )
    return [torch.zeros_like(one) if each is None else each for each, one in zip(products, at, strict=True)]


def _curvature(model: Linearised, gradient: Tensor) -> Tensor:
    """``|gᵀHg| / gᵀg``, ``[N]``: the unit in which damping is measured."""
    square = gradient.square().sum(1)
    along = (gradient * model.product(gradient)).sum(1).abs()
    return torch.where(square > 0, along / square.clamp(min=torch.finfo(square.dtype).tiny), 0.0)


def _conjugate_gradients(product: Product, gradient: Tensor, most: int, forcing: float) -> tuple[Tensor, Tensor, int]:
    """``δ ≈ −H⁻¹ g`` of N systems at once, the decrease that the model predicts, ``[N]``, and how many products."""
    tiny = torch.finfo(gradient.dtype).tiny
    move, rest = torch.zeros_like(gradient), -gradient
    direction, square = rest.clone(), rest.square().sum(1)
    goal = forcing**2 * square
    running, predicted = square > 0, torch.zeros_like(square)
    count = 0
    while count < most and bool(running.any()):
        curved = product(direction)
        count += 1
        along = (direction * curved).sum(1)
        running = running & (along > 0) & along.isfinite()
        step = torch.where(running, square / along.clamp(min=tiny), 0.0)
        move = move + step.unsqueeze(1) * direction
        rest = rest - step.unsqueeze(1) * curved.nan_to_num()
        predicted = predicted + 0.5 * step * square
        smaller = rest.square().sum(1)
        direction = rest + (smaller / square.clamp(min=tiny)).unsqueeze(1) * direction
        square = torch.where(running, smaller, square)
        running = running & (square > goal)
    lost = (predicted == 0).unsqueeze(1)  # negative curvature at once: the gradient itself
    return torch.where(lost, -gradient, move), torch.where(lost.squeeze(1), gradient.square().sum(1), predicted), count


def _evaluated(problem: Problem, point: Tensor, which: Tensor) -> Value:
    with torch.enable_grad():  # a path may need a graph of its own
        value = problem.evaluate(problem.tree(point.detach()), which)
    return Value(value.likelihood.detach(), value.prior.detach())


__all__ = ["GaussNewton", "no_linearisation"]
