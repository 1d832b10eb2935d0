"""Running an adversary: from observations to N problems of one solver, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

import torch
from torch import Tensor, nn

from leakgauge.adversary.adversary import MEMORY, Adversary, Reconstruction
from leakgauge.adversary.labels import labels_of
from leakgauge.adversary.paths import Path, PathName, choose
from leakgauge.adversary.solver import Problem, Solution
from leakgauge.adversary.solver.problem import Value, draw, spread, sweep
from leakgauge.errors import DomainError
from leakgauge.observation import Observation, check
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Candidate, Progress, Side, Tree
from leakgauge.updates import Batch, Sharing, Stack, trees


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
) -> list[Reconstruction]:
    """Attack every observation with every setting, all as problems of one solver; one result per setting.

    Settings may differ in numbers only (learning rate, prior weight …): observations are shared among them. The first
    start of observation i is ``begin[i]``, if given: an attack goes on where another one ended.
    """
    check(task, observations)
    if device is not None:
        task = task.to(device)
    if any(_varies(setting.prior) for setting in settings):
        raise DomainError(
            "weights per problem in a prior belong to no setting",
            where="attack",
            remedy="give one setting for each weight; attack() runs them together",
        )
    if begin is not None and begin.shape != (len(observations), observations[0].batch, *task.domain.shape):
        raise DomainError(
            f"{len(observations)} observations cannot begin at inputs of shape {tuple(begin.shape)}",
            where="attack",
            remedy="give one batch of inputs for each observation",
        )
    adversary = sweep(list(settings))
    _check_sweep(adversary)
    runs = [
        _Run(
            adversary, len(settings), task, [observations[i] for i in group], group, seed, path, memory, progress, begin
        )
        for group in _groups(observations)
    ]
    parts = [run.reconstruct() for run in runs]
    order = torch.tensor([i for run in runs for i in run.places]).argsort()
    return [joined([part[s] for part in parts], order.tolist()) for s in range(len(settings))]


def _check_sweep(adversary: Adversary) -> None:
    """Only numbers that act on one problem at a time may differ; the others belong to the whole batch."""
    swept = [f.name for f in fields(adversary) if _varies(getattr(adversary, f.name))]
    inner = [f.name for f in fields(adversary.solver) if _varies(getattr(adversary.solver, f.name))]  # type: ignore[arg-type]
    wrong = sorted(set(swept) - {"prior", "anneal", "solver"} | set(inner) - adversary.solver.sweepable)
    if wrong:
        raise DomainError(
            f"settings of one sweep differ in {', '.join(wrong)}",
            where="attack",
            remedy=f"attack once for each; a sweep may vary the prior, anneal and of the solver "
            f"{', '.join(sorted(adversary.solver.sweepable)) or 'nothing'}",
        )


def _varies(value: object) -> bool:
    """Whether a sweep has left a tensor of numbers in it."""
    if isinstance(value, tuple):
        return any(map(_varies, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(_varies(getattr(value, f.name)) for f in fields(value))
    return isinstance(value, Tensor)


def _groups(observations: Sequence[Observation]) -> list[list[int]]:
    """Observations that can share a batch: the same parameters, batch size and grants in every round."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, seen in enumerate(observations):
        states = tuple(tuple(p.data_ptr() for p in r.params.values()) for r in seen.rounds)
        sides = tuple((tuple(sorted(r.side)), tuple(sorted(r.nuisances))) for r in seen.rounds)
        soft = None if seen.labels is None else seen.labels.dim()
        groups.setdefault((states, sides, seen.batch, soft), []).append(i)
    return list(groups.values())


def joined(parts: Sequence[Reconstruction], places: Sequence[int]) -> Reconstruction:
    """Several reconstructions as one; row i of the whole is row ``places[i]`` of the parts put together."""
    order = torch.tensor(places)
    traces, status = [t for p in parts for t in p.traces], [s for p in parts for s in p.status]
    return Reconstruction(
        torch.cat([p.inputs for p in parts])[order],
        torch.cat([p.labels for p in parts])[order],
        torch.cat([p.log_posterior for p in parts])[order],
        tuple(traces[i] for i in places),
        tuple(status[i] for i in places),
        sum(p.evaluations for p in parts),
        parts[0].path,
    )


@dataclass(frozen=True)
class _Key:
    """One problem: observation, restart, setting."""

    observation: int
    restart: int
    setting: int


@dataclass
class _Run:
    """One group of observations under one (swept) adversary."""

    adversary: Adversary
    settings: int
    task: Task
    observations: list[Observation]
    places: list[int]
    seed: int
    path: PathName
    memory: int
    progress: Progress | None
    begin: Tensor | None
    evaluations: int = 0
    used: str = ""
    best: dict[tuple[int, int], tuple[float, dict[str, Tensor], Tensor, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = next(iter(self.task.params.values()))
        self.like = first.new_zeros(0)
        self.known = self._labels()
        self.latent = self._latent()
        self.states = [{n: p.to(first) for n, p in r.params.items()} for r in self.observations[0].rounds]

    def _labels(self) -> Tensor | None:
        """``[n, B]``: granted or inferred; None where they are optimised jointly."""
        if self.observations[0].labels is None and self.adversary.labels == "joint":
            return None
        found = [labels_of(self.task, seen, self.adversary.rule) for seen in self.observations]
        return torch.stack(found).to(self.like.device)

    def _latent(self) -> list[dict[str, tuple[int, ...]]]:
        """The noise of the model stage that is unknown in each round, by buffer name, with its shape ``[B, …]``."""
        rounds, task = self.observations[0].rounds, self.task
        if self.adversary.latent is None:
            return [{} for _ in rounds]
        drawn = task.protection.draw(task.working, self.observations[0].batch, generator=torch.Generator())
        return [{n: tuple(v.shape) for n, v in drawn.items() if n not in made.nuisances} for made in rounds]

    def reconstruct(self) -> list[Reconstruction]:
        for keys in self._waves():
            for chunk in self._chunks(keys):
                self._keep(chunk, self._solve(chunk))
        return [self._result(setting) for setting in range(self.settings)]

    def _waves(self) -> Iterator[list[_Key]]:
        """All problems at once; with a target, one restart after another for those that missed it."""
        target = getattr(self.adversary.solver, "target", None)
        everyone = range(len(self.observations))
        restarts = range(self.adversary.restarts)
        if target is None:
            yield [_Key(i, r, s) for i in everyone for r in restarts for s in range(self.settings)]
            return
        for r in restarts:
            missed = [
                _Key(i, r, s)
                for i in everyone
                for s in range(self.settings)
                if (i, s) not in self.best or not self.best[i, s][0] <= target
            ]
            if missed:
                yield missed

    def _chunks(self, keys: list[_Key]) -> Iterator[list[_Key]]:
        """As many problems at once as the memory budget holds; restarts and settings of one observation together."""
        entries = sum(p.numel() for p in self.task.params.values())
        width = self.like.element_size()
        points = self.adversary.ball.points if self.adversary.ball else 1
        live = activations(self.task) * self.observations[0].batch * points
        each = width * (12 * live + 4 * min(entries, 2**20))
        observed = width * entries * len(self.states)
        chunk: list[_Key] = []
        cost, last = 0, -1
        for key in keys:
            more = each + (observed if key.observation != last else 0)
            if chunk and cost + more > self.memory:
                yield chunk
                chunk, cost, more = [], 0, each + observed
            chunk.append(key)
            cost, last = cost + more, key.observation
        if chunk:
            yield chunk

    def _solve(self, keys: list[_Key]) -> Solution:
        rows = sorted({key.observation for key in keys})
        row_of = torch.tensor([rows.index(key.observation) for key in keys], device=self.like.device)
        setting_of = torch.tensor([key.setting for key in keys])
        seeds = tuple(seed_of(self.seed, self.places[key.observation], key.restart) for key in keys)
        seen = [self._round(rows, r) for r in range(len(self.states))]
        hidden = [self._hidden(rows, r) for r in range(len(self.states))]
        start = self._start(seeds, keys)
        labels = None if self.known is None else self.known[[key.observation for key in keys]]
        paths = [self._choose(r, seen[r], hidden[r], start, labels) for r in range(len(self.states))]
        self.used = paths[0].name
        prior = spread(self.adversary.prior, setting_of)

        def evaluate(unknowns: Tree, which: Tensor) -> Value:
            sharing = Sharing(tuple(torch.bincount(row_of[which], minlength=len(rows)).tolist()))
            soft = unknowns["labels"].softmax(-1) if labels is None else labels[which]
            candidate = Candidate(unknowns["inputs"], soft)
            terms, log_prior = [], spread(prior, which)(candidate)
            for r, (path, given, drawn) in enumerate(zip(paths, seen, hidden, strict=True)):
                guessed = {name: unknowns[f"{r}.{name}"] for name in self.latent[r]}
                mine = {name: value[row_of[which]] for name, value in drawn.items()} | guessed
                terms.append(self._likelihood(path.updates(replace(candidate, nuisances=mine), sharing), *given))
                for noise in guessed.values():
                    log_prior = log_prior - self.adversary.latent * noise.flatten(1).square().sum(1) / 2  # type: ignore[operator]
            return Value(torch.stack(terms).sum(0), log_prior)

        box = self.task.domain.box
        problem = Problem(
            start,
            evaluate,
            seeds,
            box={"inputs": box} if box else {},
            anneal=spread(self.adversary.anneal, setting_of),
            ball=self.adversary.ball,
        )
        solver = spread(self.adversary.solver, setting_of)
        solution = solver.solve(problem, self.progress)
        self.evaluations += solution.evaluations
        return solution

    def _likelihood(self, update: Batch, observed: Stack, side: Side) -> Tensor:
        if "scale" in side:  # the training stage multiplied the update by it
            update = update.scaled(side["scale"][""][update.sharing.rows(self.like.device)])
        return self.adversary.likelihood(update, observed, side, self.task.protection)

    def _hidden(self, rows: list[int], r: int) -> dict[str, Tensor]:
        """The nuisances of the model stage that are known, by buffer name, ``[observations, B, …]``."""
        rounds = [self.observations[i].rounds[r] for i in rows]
        known = [name for name in rounds[0].nuisances if name in self.task.buffers]
        return {name: torch.stack([made.nuisances[name].to(self.like) for made in rounds]) for name in known}

    def _round(self, rows: list[int], r: int) -> tuple[Stack, Side]:
        """What was observed in round r by the observations ``rows``, with what is granted or visible."""
        rounds = [self.observations[i].rounds[r] for i in rows]
        observed = trees.stacked([_moved(made.observed, self.like) for made in rounds])
        side: dict[str, Tree] = dict(self.task.protection.update.visible(observed))
        for key in rounds[0].side:
            side[key] = trees.stacked([_moved(made.side[key], self.like) for made in rounds])
        if "scale" in rounds[0].nuisances:
            side["scale"] = {"": torch.stack([made.nuisances["scale"].to(self.like) for made in rounds])}
        return observed, side

    def _start(self, seeds: Sequence[int], keys: Sequence[_Key]) -> dict[str, Tensor]:
        batch, domain, how = self.observations[0].batch, self.task.domain, self.adversary.start
        shape = (batch, *domain.shape)
        noise = {
            f"{r}.{name}": self.like.new_zeros(len(seeds), *shape)
            for r, each in enumerate(self.latent)
            for name, shape in each.items()
        }
        if how == "prior":
            inputs = self._start_of_prior([key.restart for key in keys], shape)
        else:
            inputs = draw(seeds, shape, 0, like=self.like, law="uniform" if how == "uniform" else "normal")
        first = torch.tensor([key.restart == 0 for key in keys], device=self.like.device)
        if how in ("grey", "zeros"):
            # only the first start can be the flat one: a second would end where the first did
            inputs[first] = 0.5 if how == "grey" else 0.0
        if self.begin is not None:
            inputs[first] = self.begin[[self.places[key.observation] for key in keys if key.restart == 0]].to(inputs)
        start = {"inputs": inputs}
        if self.known is None:
            start["labels"] = draw(seeds, (batch, domain.classes), 4, like=self.like)
        return start | noise

    def _start_of_prior(self, restarts: Sequence[int], shape: tuple[int, ...]) -> Tensor:
        starts = getattr(self.adversary.prior, "starts", None)
        if starts is None or self.known is None:
            what = "joint labels have no start there" if starts else f"{self.adversary.prior!r} names no starts"
            raise DomainError(what, where="adversary", remedy="choose another start, or a prior like Finite")
        inputs: Tensor = starts(restarts, self.like)
        if inputs.shape[1:] != shape:
            raise DomainError(
                f"the prior starts at records of shape {tuple(inputs.shape[1:])}, the batch has {shape}",
                where="adversary",
                remedy="give a prior over such batches",
            )
        return inputs

    def _choose(
        self,
        r: int,
        given: tuple[Stack, Side],
        hidden: Tree,
        start: dict[str, Tensor],
        labels: Tensor | None,
    ) -> Path:
        observed, side = given
        first = Stack({name: value[:1] for name, value in observed.items()})
        first_side = {key: {n: v[:1] for n, v in value.items()} for key, value in side.items()}
        y = start["labels"][:1].softmax(-1) if labels is None else labels[:1]
        noise = {**hidden, **{name: start[f"{r}.{name}"] for name in self.latent[r]}}
        probe = Candidate(start["inputs"][:1], y, {name: value[:1] for name, value in noise.items()})
        return choose(
            self.task,
            self.states[r],
            self.path,
            lambda update, _: self._likelihood(update, first, first_side),
            probe,
        )

    def _keep(self, keys: list[_Key], solution: Solution) -> None:
        """The best restart of each observation and setting; a tie, or nothing finite, keeps the earlier one."""
        for n, key in enumerate(keys):
            objective, place = float(solution.objective[n]), (key.observation, key.setting)
            if place not in self.best or objective < self.best[place][0]:
                unknowns = {name: value[n].clone() for name, value in solution.unknowns.items()}
                self.best[place] = (objective, unknowns, solution.trace[:, n].clone(), solution.status[n])

    def _result(self, setting: int) -> Reconstruction:
        won = [self.best[i, setting] for i in range(len(self.observations))]
        labels = self.known
        if labels is not None and labels.dim() == 3:  # mixed by the input stage
            labels = labels.argmax(-1)
        if labels is None:
            labels = torch.stack([unknowns["labels"].argmax(-1) for _, unknowns, *_ in won])
        return Reconstruction(
            torch.stack([unknowns["inputs"] for _, unknowns, *_ in won]),
            labels,
            -torch.tensor([objective for objective, *_ in won], dtype=self.like.dtype),
            tuple(trace[~trace.isnan()] for _, _, trace, _ in won),
            tuple(status for *_, status in won),
            self.evaluations,
            self.used,
        )


def _moved(given: Tree, like: Tensor) -> dict[str, Tensor]:
    """On the task's device; numbers in its precision, masks as they are."""
    return {n: v.to(like) if v.is_floating_point() else v.to(like.device) for n, v in given.items()}


def activations(task: Task) -> int:
    """The numbers that one forward pass of one example leaves behind."""
    total = 0

    def count(_: nn.Module, __: object, output: object) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel() // max(1, len(output))

    hooks = [module.register_forward_hook(count) for module in task.working.modules() if not list(module.children())]
    try:
        first = next(iter(task.params.values()))
        with torch.no_grad():
            task.working(torch.zeros(2, *task.domain.shape, dtype=first.dtype, device=first.device))
    finally:
        for hook in hooks:
            hook.remove()
    return total + task.domain.size


__all__ = ["MEMORY", "attack", "joined"]
