"""Watching N problems: best iterates, traces, and who may go home."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.problem import Problem, Solution, Value
from leakgauge.types import Progress


def guard_stops(patience: int | None, tolerance: float, target: float | None, solver: str) -> None:
    """What makes a problem retire early: a count, a share and a number, in the words of the solver's settings."""
    if patience is not None:
        guards.count(patience, "patience", solver)
    guards.non_negative(tolerance, "tolerance", solver)
    if target is not None:
        guards.finite(target, "target", solver)


class Watch:
    """Keeps, for every problem, the best iterate under the final objective ``−(likelihood + prior)``.

    Problems that diverged, plateaued or reached the target leave the batch; :meth:`see` then returns the
    places of those that stay, so that the solver can drop the others' state.
    """

    def __init__(
        self,
        problem: Problem,
        point: Tensor,
        steps: int,
        patience: int | None,
        tolerance: float,
        target: float | None,
        progress: Progress | None,
    ) -> None:
        self.problem, self.steps, self.progress = problem, steps, progress
        self.patience, self.tolerance, self.target = patience, tolerance, target
        total = problem.size
        self.running = torch.arange(total, device=point.device)
        self.best_point = point.clone()
        self.best = point.new_full((total,), math.inf)
        self.anchor = point.new_full((total,), math.inf)  # the best objective when it last improved by the tolerance
        self.improved = torch.zeros(total, dtype=torch.long, device=point.device)
        self.status = ["steps"] * total
        self.rows: list[tuple[Tensor, Tensor]] = []
        self.evaluations = 0

    def see(self, step: int, point: Tensor, value: Value, gradient: Tensor, forgive: bool = False) -> Tensor | None:
        """Take note of one evaluation of the running problems.

        ``forgive`` is for line searches: a trial that is not finite is only a step too far.
        """
        now = self.running
        objective = -(value.likelihood + value.prior)
        self.evaluations += len(now)
        self.rows.append((now, objective))
        better = objective < self.best[now]  # False for NaN
        if bool(better.any()):
            self.best[now] = torch.where(better, objective, self.best[now])
            self.best_point[now] = torch.where(better.unsqueeze(1), point, self.best_point[now])
        finite = torch.ones_like(better) if forgive else objective.isfinite() & gradient.isfinite().all(1)
        if self.progress is not None:
            reached = self.best[self.best.isfinite()]
            self.progress(step, self.steps, float(reached.mean()) if len(reached) else math.inf)
        return self._retire(step, finite)

    def _retire(self, step: int, finite: Tensor) -> Tensor | None:
        now, best = self.running, self.best[self.running]
        leave = ~finite
        self._mark(now[leave], "diverged")
        if self.target is not None:
            done = (best <= self.target) & ~leave
            self._mark(now[done], "target")
            leave = leave | done
        if self.patience is not None:
            anchor = self.anchor[now]
            gain = (anchor - best) > self.tolerance * anchor.abs().nan_to_num(posinf=0.0)
            self.anchor[now] = torch.where(gain, best, anchor)
            self.improved[now] = torch.where(gain, step, self.improved[now])
            flat = (step - self.improved[now] >= self.patience) & ~leave
            self._mark(now[flat], "plateau")
            leave = leave | flat
        if not bool(leave.any()):
            return None
        keep = (~leave).nonzero().squeeze(1)
        self.running = now[keep]
        return keep

    def leave(self, which: Tensor, status: str) -> None:
        """Let the marked ones of the running problems go."""
        self._mark(self.running[which], status)
        self.running = self.running[~which]

    def _mark(self, which: Tensor, status: str) -> None:
        for i in which.tolist():
            self.status[i] = status

    def solution(self) -> Solution:
        trace = self.best.new_full((len(self.rows), self.problem.size), math.nan)
        for row, (which, objective) in zip(trace, self.rows, strict=True):
            row[which] = objective
        return Solution(self.problem.tree(self.best_point), self.best, trace, tuple(self.status), self.evaluations)
