"""Running an adversary: from observations to N problems of one solver, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from leakgauge.adversary.adversary import MEMORY, Adversary, Reconstruction
from leakgauge.adversary.beginning import Beginning, Key, block
from leakgauge.adversary.features import noted_by, seen_of
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.joining import joined
from leakgauge.adversary.labels.reader import labels_by_restart
from leakgauge.adversary.levels import at_mean_level
from leakgauge.adversary.likelihoods import scaled_alike
from leakgauge.adversary.memory import at_once, bytes_per_observation, bytes_per_problem
from leakgauge.adversary.paths import Path, PathName, choose
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.rounds import Group, Shown, groups
from leakgauge.adversary.solver import Problem, Solution
from leakgauge.adversary.solver.problem import Composite, Value, spread, sweep
from leakgauge.adversary.starts import SMALL_RATE, lengths
from leakgauge.adversary.statistics import believed, refuse_without_norms
from leakgauge.adversary.sweeping import check_sweep, varies
from leakgauge.adversary.treatments import Case, settled
from leakgauge.adversary.unknowns import CODES, INPUTS, SOFT_LABELS, Unknowns
from leakgauge.adversary.winners import Winners
from leakgauge.client import BATCH_STATISTICS, LABELS, LEARNING_RATE
from leakgauge.errors import DomainError, ModelError
from leakgauge.observation import Observation, check
from leakgauge.priors.generators import Generated, generator_in
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Candidate, Progress, Seen, Tree
from leakgauge.updates import Batch, Examples, Sharing


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
        rows = sorted({key.observation for key in keys})
        row_of = torch.tensor([rows.index(key.observation) for key in keys], device=self.like.device)
        setting_of = torch.tensor([key.setting for key in keys])
        seeds = tuple(seed_of(self.seed, self.group.places[key.observation], key.restart) for key in keys)
        rounds = [self.group.shown(rows, r) for r in range(len(self.group.states))]
        statistics = [self._statistics(rows, r) for r in range(len(rounds))]
        places = torch.tensor([self.group.places[key.observation] for key in keys], device=self.like.device)
        labels = self.begins.labels_of(keys)
        unknowns = self.begins.unknowns(seeds, keys)
        same = self.group.first_alike
        paths: list[Path] = []
        for r, visible in enumerate(rounds):
            paths.append(paths[same[r]] if same[r] < r else self._choose(r, visible, unknowns, labels, statistics[r]))
        self.used = paths[0].name
        unknowns = self._with_fitted_rates(unknowns, paths, rounds, row_of, labels, statistics)
        prior = spread(self.adversary.prior, setting_of)

        def sharing_of(which: Tensor) -> Sharing:
            return Sharing(tuple(torch.bincount(row_of[which], minlength=len(rows)).tolist()))

        def log_prior(values: Tree, candidate: Candidate, which: Tensor) -> Tensor:
            return spread(prior, which)(candidate) + unknowns.log_prior(values)

        def updates(values: Tree, candidate: Candidate, which: Tensor) -> list[Batch]:
            """Of every round; rounds at the same state share theirs, where nothing else differs."""
            sharing, once, listed = sharing_of(which), dict[int, Batch](), list[Batch]()
            for r, (path, visible) in enumerate(zip(paths, rounds, strict=True)):
                granted = self._granted(visible, row_of[which], statistics[r])
                nuisances = {**self._placeholders(len(which)), **self.begins.of_round(values, r), **granted}
                if nuisances or same[r] not in once:
                    once[same[r]] = path.updates(replace(candidate, nuisances=nuisances), sharing)
                listed.append(once[same[r]])
            return listed

        def judged(update: Sequence[Batch]) -> Tensor:
            if self.fits_scale:
                update = scaled_alike(update, [visible.observed for visible in rounds], self.begins.first)
            terms = [
                self.likelihood(one, visible.observed, visible.known, self.task.protection)
                for one, visible in zip(update, rounds, strict=True)
            ]
            return torch.stack(terms).sum(0)

        def decoded(raw: Tree, which: Tensor) -> tuple[Tree, Candidate]:
            values = unknowns.decode(raw)
            here = statistics[0] and {name: value[row_of[which]] for name, value in statistics[0].items()}
            own = None if labels is None else labels[which]
            candidate = self._candidate(values, own, here, places[which], paths[0])
            return values, replace(candidate, codes=raw[INPUTS]) if self.begins.generator else candidate

        def evaluate(raw: Tree, which: Tensor) -> Value:
            values, candidate = decoded(raw, which)
            likelihood = judged(updates(values, candidate, which))  # first: its pass may note what a prior asks for
            return Value(likelihood, log_prior(values, candidate, which))

        def predict(raw: Tree, which: Tensor) -> list[Tensor]:
            return [value for one in updates(*decoded(raw, which), which) for value in one.dense().values()]

        def judge(tensors: Sequence[Tensor], which: Tensor) -> Tensor:
            names, counts = list(self.task.params), sharing_of(which).counts
            each = [tensors[i : i + len(names)] for i in range(0, len(tensors), len(names))]
            formed = [Batch.of(dict(zip(names, some, strict=True)), counts) for some in each]
            return judged([replace(one, examples=self._no_examples()) for one in formed])

        problem = Problem(
            unknowns.start,
            evaluate,
            seeds,
            box=unknowns.box,
            anneal=spread(self.adversary.anneal, setting_of),
            ball=self.adversary.ball,
            composite=Composite(predict, judge, lambda raw, which: log_prior(*decoded(raw, which), which)),
        )
        solution = spread(self.adversary.solver, setting_of).solve(problem, self.progress)
        if self.begins.at_grey:
            solution = at_mean_level(problem, solution)
        self.evaluations += solution.evaluations
        return replace(solution, unknowns={**unknowns.decode(solution.unknowns), CODES: solution.unknowns[INPUTS]})

    def _no_examples(self) -> Examples | None:
        """A formed update no longer knows its examples: refuse a defense that acts on each of them."""

        def refuse() -> Batch:
            raise DomainError(
                f"{self.task.protection!r} acts on every example, and the update is linearised as a whole",
                where=repr(self.adversary.solver),
                remedy="use lbfgs() or adam()",
            )

        return None if self.group.batch == 1 else Examples(refuse, self.group.batch, 1.0)

    def _candidate(
        self,
        values: Tree,
        labels: Tensor | None,
        statistics: Tree | None = None,
        places: Tensor | None = None,
        path: Path | None = None,
    ) -> Candidate:
        """``path`` may have noted the statistics of these inputs in its last pass."""
        state, fixed = (self.group.states[0], self.group.buffers[0]), self.adversary.norms == "fixed"

        def look(candidate: Candidate) -> Seen:
            whole = partial(seen_of, self.task, *state, candidate, believed=statistics, fixed=fixed)
            noted = path.statistics(candidate.inputs) if isinstance(path, Ghost) else None
            if noted is None or statistics is None:
                return whole()
            return noted_by(noted, statistics, lambda: whole().features)

        return Candidate(values[INPUTS], values[SOFT_LABELS] if labels is None else labels, look=look, places=places)

    def _statistics(self, rows: Sequence[int], r: int) -> dict[str, Tensor] | None:
        """What the batch statistics of round r of these observations are taken to be, ``[M, steps, C]``."""
        statistics = believed(self.task, [self.group.observations[i].rounds[r] for i in rows], self.like)
        if statistics is None and self.adversary.norms == "fixed":
            raise ModelError(
                "its batch norms keep no running statistics, and those of the batch are not known",
                where='adversary(norms="fixed")',
                remedy='grant "batch_statistics", or leave norms out',
            )
        return statistics

    def _granted(self, visible: Shown, rows: Tensor, statistics: Tree | None) -> dict[str, Any]:
        """What is granted of the stages before the update, one row per candidate; statistics only where they are fixed:
        else the candidate's own are measured, and known ones are a target of the prior."""
        granted = {address: v for address, v in visible.granted_to(rows).items() if address != BATCH_STATISTICS}
        if statistics is None or self.adversary.norms == "measured":
            return granted
        return {**granted, BATCH_STATISTICS: {name: value[rows] for name, value in statistics.items()}}

    def _placeholders(self, count: int) -> dict[str, Tensor]:
        """A hidden rate that the likelihood does not see still needs a number; which one does not matter."""
        hidden = self.group.knows.get(LEARNING_RATE) == "hidden"
        return {LEARNING_RATE: self.like.new_ones(count)} if hidden else {}

    def _with_fitted_rates(
        self,
        unknowns: Unknowns,
        paths: Sequence[Path],
        rounds: Sequence[Shown],
        row_of: Tensor,
        labels: Tensor | None,
        statistics: Sequence[Tree | None],
    ) -> Unknowns:
        """A hidden rate begins where the update of the start is as long as the one that was observed."""
        if LEARNING_RATE not in self.begins.searched:
            return unknowns
        blocks, values = dict(unknowns.blocks), unknowns.decode(unknowns.start)
        sharing = Sharing(tuple(torch.bincount(row_of).tolist()))
        for r, (path, visible) in enumerate(zip(paths, rounds, strict=True)):
            if self.begins.first[r] != r:
                continue
            nuisances = {**self.begins.of_round(values, r), **self._granted(visible, row_of, statistics[r])}
            small = {**nuisances, LEARNING_RATE: torch.full_like(row_of, SMALL_RATE, dtype=self.like.dtype)}
            candidate = replace(self._candidate(values, labels), nuisances=small)
            with torch.no_grad():
                length = path.updates(candidate, sharing).square().sum(1).sqrt() / SMALL_RATE
            received = lengths(visible.observed, self.task.protection.chain)[row_of]
            key = block(r, LEARNING_RATE, "")
            start = (received / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(1e-8, 1e4).log()
            blocks[key] = replace(blocks[key], start=start.to(self.like))
        return Unknowns(blocks)

    def _choose(
        self, r: int, visible: Shown, unknowns: Unknowns, labels: Tensor | None, statistics: Tree | None
    ) -> Path:
        """The fastest path that equals the plain gradient at the first problem's start."""
        first = visible.first()
        values = {name: value[:1] for name, value in unknowns.decode(unknowns.start).items()}
        nuisances = {
            **self._placeholders(1),
            **self.begins.of_round(values, r),
            **self._granted(first, torch.zeros(1, dtype=torch.long), statistics),
        }
        probe = replace(self._candidate(values, None if labels is None else labels[:1]), nuisances=nuisances)

        def objective(update: Batch, _: Candidate) -> Tensor:
            return self.likelihood(update, first.observed, first.known, self.task.protection)

        return choose(self.task, self.group.states[r], self.group.buffers[r], self.path, objective, probe)


__all__ = ["MEMORY", "attack"]
