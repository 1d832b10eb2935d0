"""First-order solvers: Adam, signed Adam, momentum, on ``[N, D]`` points at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.problem import Problem, Solution, Solver, at
from leakgauge.adversary.solver.schedules import Constant, Schedule, StepDecay
from leakgauge.adversary.solver.watch import Watch, guard_stops
from leakgauge.expr import check_kind, register
from leakgauge.types import Progress

Sign = Literal["none", "hard", "soft"]


@dataclass(frozen=True, repr=False)
class FirstOrder(Solver):
    """What first-order solvers share.

    ``box`` clamps unknowns that have one after every step. ``langevin`` adds ``√(2·lr·T)`` Gaussian noise with T =
    ``langevin``. A problem retires when its best objective has not improved by ``tolerance`` (relative) for
    ``patience`` steps, falls below ``target``, or is no longer finite; the others go on undisturbed.
    """

    lr: float = 0.1
    steps: int = 1000
    schedule: Schedule = field(default_factory=Constant)
    box: bool = True
    sign: Sign = "none"
    langevin: float = 0.0
    patience: int | None = None
    tolerance: float = 1e-4
    target: float | None = None
    sweepable: ClassVar[frozenset[str]] = frozenset({"lr", "schedule"})

    def __post_init__(self) -> None:
        with guards.together():
            guards.positive(self.lr, "lr", self.expression_name)
            guards.count(self.steps, "steps", self.expression_name)
            guards.choice(self.sign, "sign", self.expression_name, get_args(Sign))
            check_kind(self.schedule, "schedule", self.expression_name)
            guards.flag(self.box, "box", self.expression_name)
            guards.non_negative(self.langevin, "langevin", self.expression_name)
            guard_stops(self.patience, self.tolerance, self.target, self.expression_name)
            self.guard_own()

    def guard_own(self) -> None:
        """Guards of the settings that a solver has beside those of all."""

    def moments(self, point: Tensor) -> tuple[Tensor, ...]:
        """The state that is carried from step to step."""
        raise NotImplementedError

    def direction(self, gradient: Tensor, moments: tuple[Tensor, ...], step: int) -> Tensor:
        """The move for a unit learning rate; updates the moments in place."""
        raise NotImplementedError

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        point = problem.flat(problem.start).clone()
        low, high = problem.bounds()
        signed = problem.columns(lambda name: float(name in problem.signed)).bool()
        moments = self.moments(point)
        watch = Watch(problem, point, self.steps, self.patience, self.tolerance, self.target, progress)
        for step in range(self.steps):
            value, gradient = problem.slope(point, watch.running, step, self.steps)
            keep = watch.see(step, point, value, gradient)
            if keep is not None:
                point, gradient, *moments = (t[keep] for t in (point, gradient, *moments))  # type: ignore[assignment]
            if not len(point):
                break
            gradient = _signed(gradient, signed, self.sign)
            rate = self._rate(step, watch.running, point)
            point = point - rate * self.direction(gradient, tuple(moments), step)
            if self.langevin:
                noise = problem.draw(watch.running, (point.shape[1],), 3, step)
                point = point + (2 * rate * self.langevin) ** 0.5 * noise
            if self.box:
                point = torch.clamp(point, low, high)
        if len(point):
            value, gradient = problem.slope(point, watch.running, self.steps, self.steps)
            watch.see(self.steps, point, value, gradient)
        return watch.solution()

    def _rate(self, step: int, running: Tensor, point: Tensor) -> Any:
        rate = at(self.lr, running) * at(self.schedule(step, self.steps), running)
        return rate.to(point).unsqueeze(1) if isinstance(rate, Tensor) else rate


def _signed(gradient: Tensor, columns: Tensor, how: Sign) -> Tensor:
    if how == "none":
        return gradient
    if how == "hard":
        replaced = gradient.sign()
    else:
        # a smooth sign that, like the sign, does not depend on the gradient's scale
        inner = gradient[:, columns]
        rms = inner.square().mean(1, keepdim=True).sqrt().clamp(min=torch.finfo(gradient.dtype).tiny)
        replaced = (gradient / rms).tanh()
    return replaced if bool(columns.all()) else torch.where(columns, replaced, gradient)


@register("solver", "adam")
@dataclass(frozen=True, repr=False)
class Adam(FirstOrder):
    """Adam with bias correction; every problem has its own moments.

    References:
        Kingma and Ba, Adam, 2015. https://arxiv.org/abs/1412.6980
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def guard_own(self) -> None:
        name, example = self.expression_name, "(0.9, 0.999)"
        guards.numbers(self.betas, "betas", name, example, length=2, low=0.0, high=1.0, closed_low=True)
        guards.positive(self.epsilon, "epsilon", self.expression_name)

    def moments(self, point: Tensor) -> tuple[Tensor, ...]:
        return torch.zeros_like(point), torch.zeros_like(point)

    def direction(self, gradient: Tensor, moments: tuple[Tensor, ...], step: int) -> Tensor:
        (first, second), (b1, b2) = moments, self.betas
        first.lerp_(gradient, 1 - b1)
        second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        scale = (1 - b2 ** (step + 1)) ** 0.5
        move: Tensor = first * (scale / (1 - b1 ** (step + 1))) / (second.sqrt() + self.epsilon * scale)
        return move


@register("solver", "signed_adam")
@dataclass(frozen=True, repr=False)
class SignedAdam(Adam):
    """Adam fed with the sign of the gradient, decayed x.1 at 3/8, 5/8, 7/8, in the box.

    References:
        Geiping et al., Inverting Gradients, 2020. https://arxiv.org/abs/2003.14053
    """

    schedule: Schedule = field(default_factory=StepDecay)
    sign: Sign = "hard"


@register("solver", "momentum")
@dataclass(frozen=True, repr=False)
class Momentum(FirstOrder):
    """Gradient descent with heavy-ball momentum ``beta``; ``beta=0`` is plain gradient descent."""

    beta: float = 0.9

    def guard_own(self) -> None:
        guards.inside(self.beta, "beta", self.expression_name, 0.0, 1.0, closed_low=True)

    def moments(self, point: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros_like(point),)

    def direction(self, gradient: Tensor, moments: tuple[Tensor, ...], step: int) -> Tensor:
        return moments[0].mul_(self.beta).add_(gradient)
