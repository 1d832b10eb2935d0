"""Running an adversary: from observations to N problems of one solver, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.adversary.adversary import MEMORY, Adversary, Reconstruction
from leakgauge.adversary.beginning import Beginning, Key
from leakgauge.adversary.joining import joined
from leakgauge.adversary.labels.reader import labels_by_restart
from leakgauge.adversary.levels import at_mean_level
from leakgauge.adversary.memory import at_once, bytes_per_observation, bytes_per_problem
from leakgauge.adversary.paths import PathName
from leakgauge.adversary.posterior import Posterior
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.rounds import Group, groups
from leakgauge.adversary.solver import Solution
from leakgauge.adversary.solver.problem import spread, sweep
from leakgauge.adversary.statistics import refuse_without_norms
from leakgauge.adversary.sweeping import check_sweep, varies
from leakgauge.adversary.treatments import Case, settled
from leakgauge.adversary.unknowns import CODES, INPUTS
from leakgauge.adversary.winners import Winners
from leakgauge.client import BATCH_STATISTICS, LABELS
from leakgauge.errors import DomainError
from leakgauge.observation import Observation, check
from leakgauge.priors.generators import Generated, generator_in
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Progress


def attack(
    settings: Sequence[Adversary],
    task: Task,
    observations: Sequence[Observation],
    seed: int = 0,
    device: str | torch.device | None = None,
    path: PathName = "auto",
    memory: int = MEMORY,
    progress: Progress | None = None,
    begin: Tensor | None = None,
    shared: Shared | None = None,
) -> list[Reconstruction]:
    """Attack every observation with every setting, all as problems of one solver; one result per setting.

    Settings may differ in numbers only (learning rate, prior weight …): observations are shared among them. The first
    start of observation i is ``begin[i]``, if given, or ``begin[s, i]`` for setting s: an attack goes on where another
    one ended. ``shared`` says which rounds of every observation drew the same hidden rates: they are then one unknown.
    """
    check(task, observations)
    if device is not None:
        task = task.to(device)
    if any(varies(setting.prior) for setting in settings):
        raise DomainError(
            "weights per problem in a prior belong to no setting",
            where="attack",
            remedy="give one setting for each weight; attack() runs them together",
        )
    generator = generator_in(settings[0].prior)
    of_one = task.domain.shape if generator is None else (generator.codes,)
    shape = (len(observations), observations[0].batch, *of_one)
    if begin is not None and begin.shape not in (shape, (len(settings), *shape)):
        raise DomainError(
            f"{len(observations)} observations cannot begin at {_moved(generator)} of shape {tuple(begin.shape)}",
            where="attack",
            remedy=f"give one batch of {_moved(generator)} for each observation",
        )
    adversary = sweep(list(settings))
    check_sweep(adversary)
    runs = [
        _Run(adversary, len(settings), group, seed, path, memory, progress, begin, shared)
        for group in groups(task, observations)
    ]
    parts = [run.reconstruct() for run in runs]
    order = torch.tensor([i for run in runs for i in run.group.places]).argsort()
    return [joined([part[s] for part in parts], order.tolist()) for s in range(len(settings))]


def _moved(generator: Generated | None) -> str:
    return "inputs" if generator is None else "codes"


@dataclass
class _Run:
    """One group of observations under one (swept) adversary."""

    adversary: Adversary
    settings: int
    group: Group
    seed: int
    path: PathName
    memory: int
    progress: Progress | None
    begin: Tensor | None
    shared: Shared | None = None
    evaluations: int = 0
    used: str = ""

    def __post_init__(self) -> None:
        self.task, self.like = self.group.task, self.group.like
        case = Case(self.adversary, self.task, self.group.knows)
        self.likelihood, listed = settled(case)
        self.fits_scale = bool(self.shared and case.scales)  # one for all rounds that share it, in closed form
        if self.fits_scale:
            self.likelihood = self.adversary.likelihood
        refuse_without_norms(self.task, self.adversary.norms)
        fitted = case.scales if case.hidden_scale or self.fits_scale else ()  # by the likelihood itself
        elsewhere = {LABELS, BATCH_STATISTICS, *fitted}
        searched = [one.address for one in listed if one.how == "optimised" and one.address not in elsewhere]
        rates = frozenset(case.rates)
        self.begins = Beginning(
            self.adversary, self.group, self.settings, self._labels(), searched, rates, self.begin, self.shared
        )
        self.winners = Winners(codes=self.begins.generator is not None)

    def _labels(self) -> Tensor | None:
        """``[n, restarts, B]``: granted or inferred; None where they are optimised jointly."""
        observations = self.group.observations
        if observations[0].labels is None and self.adversary.labels == "joint":
            return None
        every = labels_by_restart(self.task, observations, self.adversary.rule, self.adversary.restarts)
        return every.to(self.like.device)

    def reconstruct(self) -> list[Reconstruction]:
        for keys in self._waves():
            for chunk in self._chunks(keys):
                self.winners.keep(chunk, self._solve(chunk), self.begins.labels_of(chunk))
        return [
            self.winners.result(setting, self.evaluations, self.used, self.like.dtype)
            for setting in range(self.settings)
        ]

    def _waves(self) -> Iterator[list[Key]]:
        """All problems at once; with a target, one restart after another for those that missed it."""
        target = getattr(self.adversary.solver, "target", None)
        everyone = range(len(self.group.observations))
        restarts = range(self.adversary.restarts)
        if target is None:
            yield [Key(i, r, s) for i in everyone for r in restarts for s in range(self.settings)]
            return
        for r in restarts:
            missed = [Key(i, r, s) for i in everyone for s in range(self.settings) if self.winners.misses(i, s, target)]
            if missed:
                yield missed

    def _chunks(self, keys: list[Key]) -> Iterator[list[Key]]:
        """As many problems at once as the memory budget holds; restarts and settings of one observation together."""
        width = self.like.element_size()
        points = self.adversary.ball.points if self.adversary.ball else 1
        each = bytes_per_problem(self.task, self.group.batch, points, width)
        observed = bytes_per_observation(self.task, len(self.group.states), width)
        chunk, most = list[Key](), at_once(len(keys))
        cost, last = 0, -1
        for key in keys:
            more = each + (observed if key.observation != last else 0)
            if chunk and (cost + more > self.memory or len(chunk) >= most):
                yield chunk
                chunk, cost, more = [], 0, each + observed
            chunk.append(key)
            cost, last = cost + more, key.observation
        if chunk:
            yield chunk

    def _solve(self, keys: list[Key]) -> Solution:
        seeds = tuple(seed_of(self.seed, self.group.places[key.observation], key.restart) for key in keys)
        posterior = Posterior(self.begins, self.likelihood, self.fits_scale, self.path, keys, seeds)
        problem = posterior.problem()
        solution = spread(self.adversary.solver, posterior.settings).solve(problem, self.progress)
        if self.begins.at_grey:
            solution = at_mean_level(problem, solution)
        self.used = posterior.paths[0].name
        self.evaluations += solution.evaluations
        values, codes = posterior.unknowns.decode(solution.unknowns), solution.unknowns[INPUTS]
        return replace(solution, unknowns={**values, CODES: codes})


__all__ = ["MEMORY", "attack"]
