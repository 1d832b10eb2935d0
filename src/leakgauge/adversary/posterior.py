"""The log posterior of the problems that are solved at once: ``log p(observed | x) + log p(x)``, term by term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from leakgauge.adversary.adversary import Adversary
from leakgauge.adversary.beginning import Beginning, Key, block
from leakgauge.adversary.features import noted_by, seen_of
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.likelihoods import Likelihood, scaled_alike
from leakgauge.adversary.paths import Path, PathName, choose
from leakgauge.adversary.rounds import Group, Shown
from leakgauge.adversary.solver import Problem
from leakgauge.adversary.solver.problem import Composite, Value, spread
from leakgauge.adversary.starts import SMALL_RATE, lengths
from leakgauge.adversary.statistics import believed
from leakgauge.adversary.unknowns import INPUTS, SOFT_LABELS, Block, Unknowns
from leakgauge.client import BATCH_STATISTICS, LEARNING_RATE
from leakgauge.errors import DomainError, ModelError
from leakgauge.task import Task
from leakgauge.types import Candidate, Prior, Seen, Tree
from leakgauge.updates import Batch, Examples, Sharing


@dataclass(frozen=True)
class Posterior:
    """Of the problems ``keys`` of one group, in the order of their observations.

    ``which`` says in every method which of the problems its rows belong to. ``fits_scale``: rounds that share a hidden
    scale get the best common one before they are judged.
    """

    begins: Beginning
    likelihood: Likelihood
    fits_scale: bool
    path_name: PathName
    keys: Sequence[Key]
    seeds: tuple[int, ...]

    @property
    def adversary(self) -> Adversary:
        return self.begins.adversary

    @property
    def group(self) -> Group:
        return self.begins.group

    @property
    def task(self) -> Task:
        return self.group.task

    @property
    def like(self) -> Tensor:
        return self.group.like

    def problem(self) -> Problem:
        """For a solver."""
        return Problem(
            self.unknowns.start,
            self.evaluate,
            self.seeds,
            box=self.unknowns.box,
            anneal=spread(self.adversary.anneal, self.settings),
            ball=self.adversary.ball,
            composite=Composite(self.predict, self.judge, self.log_prior),
        )

    # --- the equation ------------------------------------------------------------------------------------------------

    def evaluate(self, raw: Tree, which: Tensor) -> Value:
        """``log p(observed | x)`` and ``log p(x)``."""
        values, candidate = self._decoded(raw, which)
        likelihood = self._judged(self._updates(values, candidate, which))  # first: it may note what a prior asks for
        return Value(likelihood, self._log_prior(values, candidate, which))

    def predict(self, raw: Tree, which: Tensor) -> list[Tensor]:
        """The updates of all rounds, formed."""
        return [value for one in self._updates(*self._decoded(raw, which), which) for value in one.dense().values()]

    def judge(self, tensors: Sequence[Tensor], which: Tensor) -> Tensor:
        """``log p(observed | update)`` of formed updates."""
        names, counts = list(self.task.params), self._sharing(which).counts
        each = [tensors[i : i + len(names)] for i in range(0, len(tensors), len(names))]
        formed = [Batch.of(dict(zip(names, some, strict=True)), counts) for some in each]
        return self._judged([replace(one, examples=self._no_examples()) for one in formed])

    def log_prior(self, raw: Tree, which: Tensor) -> Tensor:
        """``log p(x)``."""
        return self._log_prior(*self._decoded(raw, which), which)

    def _decoded(self, raw: Tree, which: Tensor) -> tuple[Tree, Candidate]:
        values = self.unknowns.decode(raw)
        candidate = self._candidate(values, which)
        return values, replace(candidate, codes=raw[INPUTS]) if self.begins.generator else candidate

    def _updates(self, values: Tree, candidate: Candidate, which: Tensor) -> list[Batch]:
        """Of every round; rounds at the same state share theirs, where nothing else differs."""
        sharing, once, listed = self._sharing(which), dict[int, Batch](), list[Batch]()
        for r, (same, path) in enumerate(zip(self.group.first_alike, self.paths, strict=True)):
            nuisances = self._nuisances(r, values, which)
            if nuisances or same not in once:
                once[same] = path.updates(replace(candidate, nuisances=nuisances), sharing)
            listed.append(once[same])
        return listed

    def _judged(self, updates: Sequence[Batch]) -> Tensor:
        """The sum over rounds of ``log p(observed | update)``."""
        if self.fits_scale:
            updates = scaled_alike(updates, [visible.observed for visible in self.rounds], self.begins.first)
        return torch.stack(list(map(self._likelihood, updates, self.rounds))).sum(0)

    def _likelihood(self, update: Batch, visible: Shown) -> Tensor:
        return self.likelihood(update, visible.observed, visible.known, self.task.protection)

    def _log_prior(self, values: Tree, candidate: Candidate, which: Tensor) -> Tensor:
        return spread(self.prior, which)(candidate) + self.unknowns.log_prior(values)

    # --- what stays the same in all steps ----------------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[int]:
        """The observations that are attacked."""
        return sorted({key.observation for key in self.keys})

    @cached_property
    def row_of(self) -> Tensor:
        """Where the observation of every problem stands among ``rows``."""
        return torch.tensor([self.rows.index(key.observation) for key in self.keys], device=self.like.device)

    @cached_property
    def places(self) -> Tensor:
        """Where the observation of every problem stood in the call."""
        return torch.tensor([self.group.places[key.observation] for key in self.keys], device=self.like.device)

    @cached_property
    def settings(self) -> Tensor:
        return torch.tensor([key.setting for key in self.keys])

    @cached_property
    def labels(self) -> Tensor | None:
        return self.begins.labels_of(self.keys)

    @cached_property
    def prior(self) -> Prior:
        return spread(self.adversary.prior, self.settings)

    @cached_property
    def rounds(self) -> list[Shown]:
        return [self.group.shown(self.rows, r) for r in range(len(self.group.states))]

    @cached_property
    def statistics(self) -> list[dict[str, Tensor] | None]:
        """What the batch statistics of every round are taken to be, ``[M, steps, C]``."""
        observations = [self.group.observations[i] for i in self.rows]
        each = [
            believed(self.task, [one.rounds[r] for one in observations], self.like) for r in range(len(self.rounds))
        ]
        if self.adversary.norms == "fixed" and any(one is None for one in each):
            raise ModelError(
                "its batch norms keep no running statistics, and those of the batch are not known",
                where='adversary(norms="fixed")',
                remedy='grant "batch_statistics", or leave norms out',
            )
        return each

    @cached_property
    def paths(self) -> list[Path]:
        """Of every round; rounds at the same state share theirs."""
        paths: list[Path] = []
        for r, same in enumerate(self.group.first_alike):
            paths.append(paths[same] if same < r else self._chosen(r))
        return paths

    @cached_property
    def unknowns(self) -> Unknowns:
        """What the solver moves, and from where."""
        return Unknowns({**self._begun.blocks, **dict(self._fitted_rates())})

    @cached_property
    def _begun(self) -> Unknowns:
        """Before hidden rates are fitted."""
        return self.begins.unknowns(self.seeds, self.keys)

    # --- one candidate for each of some problems ---------------------------------------------------------------------

    def _candidate(self, values: Tree, which: Tensor) -> Candidate:
        labels = values[SOFT_LABELS] if self.labels is None else self.labels[which]
        look = partial(self._features, which)
        return Candidate(values[INPUTS], labels, look=look, places=self.places[which])

    def _features(self, which: Tensor, candidate: Candidate) -> Seen:
        """What a prior may ask for; the path of the first round may have noted statistics in its last pass."""
        statistics, path = self._statistics_of(0, which), self.paths[0]
        state, fixed = (self.group.states[0], self.group.buffers[0]), self.adversary.norms == "fixed"
        whole = partial(seen_of, self.task, *state, candidate, believed=statistics, fixed=fixed)
        noted = path.statistics(candidate.inputs) if isinstance(path, Ghost) else None
        if noted is None or statistics is None:
            return whole()
        return noted_by(noted, statistics, lambda: whole().features)

    def _nuisances(self, r: int, values: Tree, which: Tensor) -> dict[str, Any]:
        """Of round r: what is searched for and what is granted, one row per candidate."""
        hidden = self.group.knows.get(LEARNING_RATE) == "hidden"
        # a hidden rate that the likelihood does not see still needs a number; which one does not matter
        placeholders = {LEARNING_RATE: self.like.new_ones(len(which))} if hidden else {}
        return {**placeholders, **self.begins.of_round(values, r), **self._granted(r, which)}

    def _granted(self, r: int, which: Tensor) -> dict[str, Any]:
        """What is granted of the stages before the update; statistics only where they are fixed: else the candidate's
        own are measured, and known ones are a target of the prior."""
        visible = self.rounds[r].granted_to(self.row_of[which])
        granted = {address: value for address, value in visible.items() if address != BATCH_STATISTICS}
        statistics = None if self.adversary.norms == "measured" else self._statistics_of(r, which)
        return granted if statistics is None else {**granted, BATCH_STATISTICS: statistics}

    def _statistics_of(self, r: int, which: Tensor) -> dict[str, Tensor] | None:
        statistics = self.statistics[r]
        return statistics and {name: value[self.row_of[which]] for name, value in statistics.items()}

    def _sharing(self, which: Tensor) -> Sharing:
        return Sharing(tuple(torch.bincount(self.row_of[which], minlength=len(self.rows)).tolist()))

    def _no_examples(self) -> Examples | None:
        """A formed update no longer knows its examples: refuse a defense that acts on each of them."""

        def refuse() -> Batch:
            raise DomainError(
                f"{self.task.protection!r} acts on every example, and the update is linearised as a whole",
                where=repr(self.adversary.solver),
                remedy="use lbfgs() or adam()",
            )

        return None if self.group.batch == 1 else Examples(refuse, self.group.batch, 1.0)

    # --- before the first step ---------------------------------------------------------------------------------------

    def _chosen(self, r: int) -> Path:
        """The fastest path of round r that equals the plain gradient at the first problem's start."""
        first, which = self.rounds[r].first(), torch.arange(1, device=self.like.device)
        values = {name: value[:1] for name, value in self._begun.decode(self._begun.start).items()}
        probe = replace(self._candidate(values, which), nuisances=self._nuisances(r, values, which))

        def objective(update: Batch, _: Candidate) -> Tensor:
            return self._likelihood(update, first)

        return choose(self.task, self.group.states[r], self.group.buffers[r], self.path_name, objective, probe)

    def _fitted_rates(self) -> Iterator[tuple[str, Block]]:
        """A hidden rate begins where the update of the start is as long as the one that was observed."""
        if LEARNING_RATE not in self.begins.searched:
            return
        values, which = self._begun.decode(self._begun.start), torch.arange(len(self.keys), device=self.like.device)
        small = {LEARNING_RATE: self.like.new_full((len(which),), SMALL_RATE)}
        for r, path in enumerate(self.paths):
            if self.begins.first[r] != r:
                continue
            nuisances = {**self._nuisances(r, values, which), **small}
            candidate = replace(self._candidate(values, which), nuisances=nuisances)
            with torch.no_grad():
                length = path.updates(candidate, self._sharing(which)).square().sum(1).sqrt() / SMALL_RATE
            received = lengths(self.rounds[r].observed, self.task.protection.chain)[self.row_of]
            start = (received / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(1e-8, 1e4).log()
            name = block(r, LEARNING_RATE, "")
            yield name, replace(self._begun.blocks[name], start=start.to(self.like))


__all__ = ["Posterior"]
