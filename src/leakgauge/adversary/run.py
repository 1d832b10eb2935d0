"""Running an adversary: from observations to N problems of one solver, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from leakgauge.adversary.adversary import MEMORY, Adversary, Reconstruction
from leakgauge.adversary.features import noted_by, seen_of
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.labels.reader import labels_by_restart
from leakgauge.adversary.likelihoods import scaled_alike
from leakgauge.adversary.memory import bytes_per_observation, bytes_per_problem
from leakgauge.adversary.paths import Path, PathName, choose
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.rounds import Group, Shown, groups
from leakgauge.adversary.solver import Problem, Solution
from leakgauge.adversary.solver.problem import Composite, Value, draw, spread, sweep
from leakgauge.adversary.starts import SMALL_RATE, lengths
from leakgauge.adversary.statistics import believed, refuse_without_norms
from leakgauge.adversary.treatments import Case, settled
from leakgauge.adversary.unknowns import CODES, INPUTS, SOFT_LABELS, Block, Unknowns
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
    if any(_varies(setting.prior) for setting in settings):
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
    _check_sweep(adversary)
    runs = [
        _Run(adversary, len(settings), group, seed, path, memory, progress, begin, shared)
        for group in groups(task, observations)
    ]
    parts = [run.reconstruct() for run in runs]
    order = torch.tensor([i for run in runs for i in run.group.places]).argsort()
    return [joined([part[s] for part in parts], order.tolist()) for s in range(len(settings))]


def _moved(generator: Generated | None) -> str:
    return "inputs" if generator is None else "codes"


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
        certified=_certified(parts, order),
        codes=None if parts[0].codes is None else torch.cat([p.codes for p in parts if p.codes is not None])[order],
        notes=tuple(dict.fromkeys(note for p in parts for note in p.notes)),
    )


def _certified(parts: Sequence[Reconstruction], order: Tensor) -> Tensor | None:
    """Which records are proven; none of a part that proves nothing."""
    if all(p.certified is None for p in parts):
        return None
    masks = [torch.zeros(p.inputs.shape[:2], dtype=torch.bool) if p.certified is None else p.certified for p in parts]
    return torch.cat(masks)[order]


@dataclass(frozen=True)
class _Key:
    """One problem: observation, restart, setting."""

    observation: int
    restart: int
    setting: int


@dataclass(frozen=True)
class _Best:
    """The best restart of one observation under one setting."""

    objective: float
    inputs: Tensor
    labels: Tensor
    trace: Tensor
    status: str
    codes: Tensor | None


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
    best: dict[tuple[int, int], _Best] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task, self.like = self.group.task, self.group.like
        case = Case(self.adversary, self.task, self.group.knows)
        self.likelihood, listed = settled(case)
        self.first = self.shared.first if self.shared else tuple(range(len(self.group.states)))
        self.fits_scale = bool(self.shared and case.scales)  # one for all rounds that share it, in closed form
        if self.fits_scale:
            self.likelihood = self.adversary.likelihood
        refuse_without_norms(self.task, self.adversary.norms)
        elsewhere = {
            LABELS,
            BATCH_STATISTICS,
            *(case.scales if case.hidden_scale or self.fits_scale else ()),
        }  # a fitted scale is the likelihood's own
        self.rates = frozenset(case.rates)
        self.searched = [one.address for one in listed if one.how == "optimised" and one.address not in elsewhere]
        self.labels = self._labels()
        self.generator = generator_in(self.adversary.prior)

    def _labels(self) -> Tensor | None:
        """``[n, restarts, B]``: granted or inferred; None where they are optimised jointly."""
        observations = self.group.observations
        if observations[0].labels is None and self.adversary.labels == "joint":
            return None
        every = labels_by_restart(self.task, observations, self.adversary.rule, self.adversary.restarts)
        return every.to(self.like.device)

    def _labels_of(self, keys: Sequence[_Key]) -> Tensor | None:
        if self.labels is None:
            return None
        return self.labels[[key.observation for key in keys], [key.restart for key in keys]]

    def reconstruct(self) -> list[Reconstruction]:
        for keys in self._waves():
            for chunk in self._chunks(keys):
                self._keep(chunk, self._solve(chunk))
        return [self._result(setting) for setting in range(self.settings)]

    def _waves(self) -> Iterator[list[_Key]]:
        """All problems at once; with a target, one restart after another for those that missed it."""
        target = getattr(self.adversary.solver, "target", None)
        everyone = range(len(self.group.observations))
        restarts = range(self.adversary.restarts)
        if target is None:
            yield [_Key(i, r, s) for i in everyone for r in restarts for s in range(self.settings)]
            return
        for r in restarts:
            missed = [
                _Key(i, r, s)
                for i in everyone
                for s in range(self.settings)
                if (i, s) not in self.best or not self.best[i, s].objective <= target
            ]
            if missed:
                yield missed

    def _chunks(self, keys: list[_Key]) -> Iterator[list[_Key]]:
        """As many problems at once as the memory budget holds; restarts and settings of one observation together."""
        width = self.like.element_size()
        points = self.adversary.ball.points if self.adversary.ball else 1
        each = bytes_per_problem(self.task, self.group.batch, points, width)
        observed = bytes_per_observation(self.task, len(self.group.states), width)
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
        seeds = tuple(seed_of(self.seed, self.group.places[key.observation], key.restart) for key in keys)
        rounds = [self.group.shown(rows, r) for r in range(len(self.group.states))]
        statistics = [self._statistics(rows, r) for r in range(len(rounds))]
        places = torch.tensor([self.group.places[key.observation] for key in keys], device=self.like.device)
        labels = self._labels_of(keys)
        unknowns = self._unknowns(seeds, keys)
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
                nuisances = {**self._placeholders(len(which)), **self._of_round(values, r), **granted}
                if nuisances or same[r] not in once:
                    once[same[r]] = path.updates(replace(candidate, nuisances=nuisances), sharing)
                listed.append(once[same[r]])
            return listed

        def judged(update: Sequence[Batch]) -> Tensor:
            if self.fits_scale:
                update = scaled_alike(update, [visible.observed for visible in rounds], self.first)
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
            return values, replace(candidate, codes=raw[INPUTS]) if self.generator else candidate

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

    # --- where the unknowns begin

    def _unknowns(self, seeds: Sequence[int], keys: Sequence[_Key]) -> Unknowns:
        blocks = {INPUTS: self._codes(seeds, keys) if self.generator else self._block(seeds, keys)}
        if self.labels is None:
            logits = draw(seeds, (self.group.batch, self.task.domain.classes), 4, like=self.like)
            blocks[SOFT_LABELS] = Block(logits, decode=lambda raw: raw.softmax(-1))
        for r, address in product(range(len(self.group.states)), self.searched):
            if self.first[r] != r and address in self.rates:
                continue
            weight, laws = self._prior_weight, self.task.laws(address)
            start = self._rates_of(address, r, keys)
            for name, shape in self.task.shapes(address, self.group.batch).items():
                blocks[_block(r, address, name)] = Block.of_law(
                    laws[name], (len(seeds), *shape), self.like, weight, start
                )
        return Unknowns(blocks)

    def _rates_of(self, address: str, r: int, keys: Sequence[_Key]) -> Tensor | None:
        """Where hidden rates of round r begin, if an earlier attack says so."""
        if self.shared is None or address not in self.shared.rates:
            return None
        return self.shared.rates[address][[self.group.places[key.observation] for key in keys], r]

    def _of_round(self, values: Tree, r: int) -> dict[str, Any]:
        """The nuisances among the unknowns of round r, by address; rates are those of the first round that shares."""
        return {**_of_round(values, self.first[r]), **_of_round(values, r)}

    def _block(self, seeds: Sequence[int], keys: Sequence[_Key]) -> Block:
        return Block(self._inputs(seeds, keys), box=self.task.domain.box)

    def _codes(self, seeds: Sequence[int], keys: Sequence[_Key]) -> Block:
        """The codes of a generator in place of inputs, each time from the middle of its prior, then from anywhere."""
        assert self.generator is not None
        decode = self.generator.decoder(self.like, self.task.domain.shape)
        codes = draw(seeds, (self.group.batch, self.generator.codes), 0, like=self.like)
        # equal codes of a batch would stay equal: only one record alone can begin in the middle
        codes[[n for n, key in enumerate(keys) if key.restart == 0 and self.group.batch == 1]] = 0
        self._begun(codes, keys)
        return Block(self.generator.begin(codes, self._labels_of(keys)), decode)

    @property
    def _prior_weight(self) -> float:
        """Of the log prior of a nuisance beside the likelihood; that of a rate is flat, whatever it weighs."""
        weight = self.adversary.hidden
        return 1.0 if weight is None else weight

    def _inputs(self, seeds: Sequence[int], keys: Sequence[_Key]) -> Tensor:
        shape, how = (self.group.batch, *self.task.domain.shape), self.adversary.start
        if how == "prior":
            inputs = self._inputs_of_prior([key.restart for key in keys], shape)
        else:
            inputs = draw(seeds, shape, 0, like=self.like, law="uniform" if how == "uniform" else "normal")
        first = torch.tensor([key.restart == 0 for key in keys], device=self.like.device)
        if how in ("grey", "zeros"):
            # only the first start can be the flat one: a second would end where the first did
            inputs[first] = 0.5 if how == "grey" and self.task.domain.box is not None else 0.0
        self._begun(inputs, keys)
        return inputs

    def _begun(self, start: Tensor, keys: Sequence[_Key]) -> None:
        """Put the first start of each observation where it was told to begin."""
        begins = [(n, key) for n, key in enumerate(keys) if key.restart == 0]
        if self.begin is None or not begins:
            return
        each = self.begin.dim() > start.dim()  # its own for every setting
        begin = self.begin if each else self.begin.expand(self.settings, *self.begin.shape)
        places = [(key.setting, self.group.places[key.observation]) for _, key in begins]
        start[[n for n, _ in begins]] = torch.stack([begin[s, i] for s, i in places]).to(start)

    def _inputs_of_prior(self, restarts: Sequence[int], shape: tuple[int, ...]) -> Tensor:
        starts = getattr(self.adversary.prior, "starts", None)
        if starts is None or self.labels is None:
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
        if LEARNING_RATE not in self.searched:
            return unknowns
        blocks, values = dict(unknowns.blocks), unknowns.decode(unknowns.start)
        sharing = Sharing(tuple(torch.bincount(row_of).tolist()))
        for r, (path, visible) in enumerate(zip(paths, rounds, strict=True)):
            if self.first[r] != r:
                continue
            nuisances = {**self._of_round(values, r), **self._granted(visible, row_of, statistics[r])}
            small = {**nuisances, LEARNING_RATE: torch.full_like(row_of, SMALL_RATE, dtype=self.like.dtype)}
            candidate = replace(self._candidate(values, labels), nuisances=small)
            with torch.no_grad():
                length = path.updates(candidate, sharing).square().sum(1).sqrt() / SMALL_RATE
            received = lengths(visible.observed, self.task.protection.chain)[row_of]
            key = _block(r, LEARNING_RATE, "")
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
            **self._of_round(values, r),
            **self._granted(first, torch.zeros(1, dtype=torch.long), statistics),
        }
        probe = replace(self._candidate(values, None if labels is None else labels[:1]), nuisances=nuisances)

        def objective(update: Batch, _: Candidate) -> Tensor:
            return self.likelihood(update, first.observed, first.known, self.task.protection)

        return choose(self.task, self.group.states[r], self.group.buffers[r], self.path, objective, probe)

    # --- what came out

    def _keep(self, keys: list[_Key], solution: Solution) -> None:
        """The best restart of each observation and setting; a tie, or nothing finite, keeps the earlier one."""
        used = self._labels_of(keys)
        labels = solution.unknowns[SOFT_LABELS] if used is None else used
        hard = (
            labels.argmax(-1) if labels.dim() == 3 else labels
        )  # soft where searched for, or mixed by the input stage
        for n, key in enumerate(keys):
            objective, place = float(solution.objective[n]), (key.observation, key.setting)
            if place not in self.best or objective < self.best[place].objective:
                self.best[place] = _Best(
                    objective,
                    solution.unknowns[INPUTS][n].clone(),
                    hard[n],
                    solution.trace[:, n].clone(),
                    solution.status[n],
                    solution.unknowns[CODES][n].clone() if self.generator else None,
                )

    def _result(self, setting: int) -> Reconstruction:
        won = [self.best[i, setting] for i in range(len(self.group.observations))]
        return Reconstruction(
            torch.stack([one.inputs for one in won]),
            torch.stack([one.labels for one in won]),
            -torch.tensor([one.objective for one in won], dtype=self.like.dtype),
            tuple(one.trace[~one.trace.isnan()] for one in won),
            tuple(one.status for one in won),
            self.evaluations,
            self.used,
            codes=torch.stack([one.codes for one in won if one.codes is not None]) if self.generator else None,
        )


def _block(r: int, address: str, name: str) -> str:
    """The name of the unknown that a nuisance of round r is, or one of its tensors."""
    return f"{r}/{address}/{name}" if name else f"{r}/{address}"


def _of_round(values: Tree, r: int) -> dict[str, Any]:
    """The nuisances among the unknowns of round r, by address."""
    nuisances: dict[str, Any] = {}
    for key, value in values.items():
        number, _, rest = key.partition("/")
        if number == str(r):
            address, _, name = rest.partition("/")
            if name:  # of one layer
                nuisances.setdefault(address, {})[name] = value
            else:
                nuisances[address] = value
    return nuisances


__all__ = ["MEMORY", "attack", "joined"]
