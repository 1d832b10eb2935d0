"""Our engine: the public adversary, timed from its progress callback."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.cases import CODES, KINDS, TV, Case, Setting
from benchmarks.stamps import Stamps
from leakgauge.adversary import Adversary, signed_adam
from leakgauge.adversary.solver import Problem, Solution, Solver
from leakgauge.priors import batch_norm, tv
from leakgauge.priors.generators import Generator
from leakgauge.types import Progress

MEMORY = 16_000_000_000
"""All problems at once, whatever they need."""


def adversary(case: Case, solver: Solver) -> Adversary:
    """The adversary of a case: its likelihood, the peers' prior."""
    restarts = case.problems if case.shared else 1
    weight, prior = case.model.statistics, TV * tv()
    if weight:
        prior = prior + weight * batch_norm()
    if case.model.codes:
        prior = prior + CODES * Generator(case.model.generator(), case.model.codes)
    return Adversary(likelihood=KINDS[case.kind].likelihood, prior=prior, solver=solver, restarts=restarts)


@dataclass(frozen=True)
class Ours:
    """The batched solver on all problems of a setting."""

    setting: Setting

    def run(self, steps: int, stamps: Stamps) -> None:
        """``steps`` iterations of all problems, through the front door."""
        made = adversary(self.setting.case, signed_adam(lr=0.1, steps=steps))
        stamps.begin()
        found = made(self.setting.task, self.setting.observations, memory=MEMORY, progress=lambda *_: stamps.tick())
        assert found.path == "ghost", found.path
        assert len(stamps.runs[-1]) == steps + 1, "the problems were not solved at once"


@dataclass(frozen=True, repr=False)
class Probe(Solver):
    """A solver that takes no step: it keeps the starts, and the objective with its gradient there."""

    steps: int = 1
    seen: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        point = problem.flat(problem.start)
        value, gradient = problem.slope(point, torch.arange(problem.size), 0, 1)
        objective = -(value.likelihood + value.prior)
        self.seen.append((problem.start["inputs"], objective, gradient))
        return Solution(problem.tree(point), objective, objective.unsqueeze(0), ("steps",) * problem.size, problem.size)


def at_start(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """The starts ``[N, 1, …]``, the objective there ``[N]`` and its gradient ``[N, 1, …]``, as our solver sees them."""
    probe = Probe()
    adversary(setting.case, probe)(setting.task, setting.observations, memory=MEMORY)
    ((start, objective, gradient),) = probe.seen
    return start, objective, gradient.view_as(start)
