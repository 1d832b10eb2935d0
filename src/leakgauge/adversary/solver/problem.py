"""What a solver sees: a point per problem, and an objective with its gradient.

Unknowns are a named tree, each ``[N, …]``; the solver works on their concatenation ``[N, D]``. Every random
draw is a function of (problem seed, step), so that a problem's result does not depend on its neighbours.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.schedules import Constant, Schedule
from leakgauge.errors import DomainError
from leakgauge.expr import Part, register
from leakgauge.seeds import seed_of
from leakgauge.types import Progress, Tree
from leakgauge.updates.trees import rows

P = TypeVar("P")


@dataclass(frozen=True)
class Value:
    """The two terms of a log posterior, each ``[N]``."""

    likelihood: Tensor
    prior: Tensor


Evaluate = Callable[[Tree, Tensor], Value]
"""``(unknowns [n, …], which problems [n]) → Value``: the problems still running, or several points of each."""


@dataclass(frozen=True)
class Composite:
    """The same objective in two steps, for solvers that linearise the first of them.

    ``predict`` gives the updates of the unknowns, formed, each tensor ``[n, …]``; ``judge`` their log likelihood
    ``[n]``, and ``prior`` the log prior ``[n]``; each is told which problems its rows belong to.
    """

    predict: Callable[[Tree, Tensor], list[Tensor]]
    judge: Callable[[Sequence[Tensor], Tensor], Tensor]
    prior: Callable[[Tree, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """N problems: where they start, what they maximise, and the box of the unknowns that have one.

    ``evaluate`` is told which problems its rows belong to (ascending, with repetition when each has several
    points). ``signed`` names the unknowns whose gradient a signed optimiser may replace by its sign.
    """

    start: Tree
    evaluate: Evaluate
    seeds: tuple[int, ...]
    box: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    signed: frozenset[str] = frozenset({"inputs"})
    anneal: Schedule = field(default_factory=Constant)
    ball: Ball | None = None
    composite: Composite | None = None

    @property
    def size(self) -> int:
        return len(self.seeds)

    def flat(self, tree: Tree) -> Tensor:
        return torch.cat([rows(tree[name]) for name in self.start], 1)

    def tree(self, point: Tensor) -> dict[str, Tensor]:
        pieces = point.split([v[0].numel() for v in self.start.values()], 1)
        return {
            name: piece.reshape(len(point), *v.shape[1:])
            for (name, v), piece in zip(self.start.items(), pieces, strict=True)
        }

    def columns(self, value: Callable[[str], float]) -> Tensor:
        """One number per coordinate, from one per unknown: ``[D]``."""
        like = next(iter(self.start.values()))
        pieces = [like.new_full((v[0].numel(),), value(name)) for name, v in self.start.items()]
        return torch.cat(pieces)

    def bounds(self) -> tuple[Tensor, Tensor]:
        low, high = (self.columns(lambda n, i=i: self.box.get(n, (-math.inf, math.inf))[i]) for i in (0, 1))  # type: ignore[misc]
        return low, high

    def slope(self, point: Tensor, which: Tensor, step: int, steps: int) -> tuple[Value, Tensor]:
        """The terms at ``point [n, D]`` and the gradient of ``−(weight · likelihood + prior)``."""
        with torch.enable_grad():
            live = point.detach().requires_grad_()
            points, rows = (live, which) if self.ball is None else self.ball.around(live, which, self, step)
            value = self.evaluate(self.tree(points), rows)
            weight = at(self.anneal(step, steps), rows)
            objective = -(weight * value.likelihood + value.prior).sum() * (len(point) / len(points))
            (gradient,) = torch.autograd.grad(objective, live)
        terms = (t.detach().unflatten(0, (len(point), -1)).mean(1) for t in (value.likelihood, value.prior))
        return Value(*terms), gradient

    def draw(self, which: Tensor, shape: Sequence[int], *key: int, law: str = "normal") -> Tensor:
        """Random numbers ``[n, *shape]``, each row from its problem's own seed and ``key``."""
        like = next(iter(self.start.values()))
        return draw([self.seeds[i] for i in which.tolist()], shape, *key, like=like, law=law)


def draw(seeds: Sequence[int], shape: Sequence[int], *key: int, like: Tensor, law: str = "normal") -> Tensor:
    """``[len(seeds), *shape]``: row i is a function of ``seeds[i]`` and ``key`` alone."""
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed_of(seed, *key))
        fill = torch.randn if law == "normal" else torch.rand
        rows.append(fill(tuple(shape), generator=generator, dtype=like.dtype))
    return torch.stack(rows).to(like.device)


@register("ball", "ball")
@dataclass(frozen=True, repr=False)
class Ball(Part):
    """Average the objective over ``points`` drawn uniformly in the δ-ball around the inputs (Algorithm 1).

    A uniform point of a d-ball has radius ``δ U^{1/d}``; in high dimension nearly all of them sit near the
    surface. ``points=1, delta=0`` is the centre alone, which is what the paper's released code runs.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, eq. 3. https://arxiv.org/abs/2111.04706
    """

    points: int = 1
    delta: float = 0.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.count(self.points, "points", "ball")
            guards.non_negative(self.delta, "delta", "ball")

    def around(self, live: Tensor, which: Tensor, problem: Problem, step: int) -> tuple[Tensor, Tensor]:
        """``[n·k, D]`` points and the problem of each; only the inputs move."""
        inputs = problem.columns(lambda name: float(name == "inputs")).bool()
        shift = live.new_zeros(len(live), self.points, live.shape[1])
        shift[:, :, inputs] = self.sample(problem, which, int(inputs.sum()), step)
        return (live.unsqueeze(1) + shift).flatten(0, 1), which.repeat_interleave(self.points)

    def sample(self, problem: Problem, which: Tensor, dimension: int, step: int) -> Tensor:
        """``[n, k, d]`` uniform in the ball of radius δ."""
        normal = problem.draw(which, (self.points, dimension), 1, step)
        radius = problem.draw(which, (self.points, 1), 2, step, law="uniform") ** (1 / dimension)
        shift: Tensor = self.delta * radius * normal / normal.norm(dim=2, keepdim=True)
        return shift


@dataclass(frozen=True)
class Solution:
    """The best iterate of each problem under the final objective, and how it got there.

    ``objective`` is ``−log posterior``; ``trace [steps, N]`` is NaN after a problem retired; ``status`` says why
    each one ended (``steps``, ``plateau``, ``target``, ``diverged``).
    """

    unknowns: dict[str, Tensor]
    objective: Tensor
    trace: Tensor
    status: tuple[str, ...]
    evaluations: int


class Solver(Part):
    """An optimiser of N problems at once. ``sweepable`` names the numbers that may differ among them."""

    steps: int
    sweepable: ClassVar[frozenset[str]] = frozenset()

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        raise NotImplementedError


def at(value: Any, which: Tensor) -> Any:
    """A setting for the problems ``which``: the number itself, or in a sweep its entry for each."""
    return value[which] if isinstance(value, Tensor) and value.dim() else value


def sweep(parts: Sequence[P]) -> P:
    """Parts of one shape as one, whose differing numbers are tensors ``[len(parts)]``.

    This is how N problems get N learning rates: numbers that agree stay numbers.
    """
    first = parts[0]
    if all(type(p) is type(first) and p == first for p in parts[1:]):
        return first
    if all(isinstance(p, int | float) and not isinstance(p, bool) for p in parts):
        return torch.tensor(parts, dtype=torch.float64)  # type: ignore[return-value]
    if isinstance(first, tuple) and all(isinstance(p, tuple) and len(p) == len(first) for p in parts):
        return tuple(map(sweep, zip(*parts, strict=True)))  # type: ignore[return-value]
    if dataclasses.is_dataclass(first) and all(type(p) is type(first) for p in parts):
        merged = copy.copy(first)
        for f in dataclasses.fields(first):
            object.__setattr__(merged, f.name, sweep([getattr(p, f.name) for p in parts]))
        return merged
    raise DomainError(f"{first!r} and {parts[-1]!r} differ in more than numbers", where="sweep")


def spread(part: P, which: Tensor) -> P:
    """A swept part with its tensors indexed: problem n gets the setting ``which[n]``."""
    if isinstance(part, Tensor):
        return part[which]  # type: ignore[return-value]
    if isinstance(part, tuple):
        return tuple(spread(p, which) for p in part)  # type: ignore[return-value]
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        copied = copy.copy(part)
        for f in dataclasses.fields(part):
            object.__setattr__(copied, f.name, spread(getattr(part, f.name), which))
        return copied
    return part
