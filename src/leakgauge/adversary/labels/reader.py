"""Reading labels off observations: one reader for each state of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.labels.counts import Counts, overlap, spelled, whole
from leakgauge.adversary.labels.evidence import evidence
from leakgauge.adversary.labels.layer import LastLayer, drawn_inputs
from leakgauge.adversary.labels.likelihood import counted
from leakgauge.adversary.labels.rules import by_sign, unique
from leakgauge.errors import ModelError
from leakgauge.observation import Observation, Round, send
from leakgauge.task import Task
from leakgauge.types import Records

Rule = Literal["auto", "bias", "rows", "unique"]
"""``auto``: counts by likelihood, of everything that the last layer says; the others are published rules."""
SIMULATIONS = 3
"""Rounds of correction by simulated clients, where there are several local steps."""
TRIALS, SKEW = 4, 0.3
"""Simulated clients on which the reader measures itself, and the Dirichlet law of their counts."""


@dataclass(frozen=True)
class LabelReader:
    """Reads the labels of updates that were computed at one state of the model."""

    task: Task
    layer: LastLayer
    _reached: dict[int, float] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, task: Task, one: Round) -> LabelReader:
        """The reader at the state of a round."""
        return cls(task, LastLayer.of(task, one.params, one.buffers))

    def counts(self, one: Round, batch: int, rule: Rule = "auto") -> Counts:
        """How many examples of each class the update of ``batch`` examples gives away, and how sure that is."""
        counts = self.read(one, batch, rule)
        if rule != "auto":
            return counts
        return replace(counts, confidence=min(counts.confidence, self._share_right(one, batch)))

    def read(self, one: Round, batch: int, rule: Rule = "auto") -> Counts:
        """The counts without simulated clients: as sure as the likelihood is, which may be too sure."""
        guards.choice(rule, "rule", "labels", get_args(Rule))
        weight, bias = self.layer.names
        if rule == "auto":
            return self._likeliest(one, batch)
        if rule == "bias" and bias is None:
            raise ModelError("the last layer has no bias", where="labels", remedy='use rule="auto"')
        sign = -1.0 if self.task.recipe.shares == "change" else 1.0  # a weight change points against the gradient
        if rule == "unique":
            return unique(sign * one.observed[weight], batch)
        signal = one.observed[bias] if rule == "bias" and bias is not None else one.observed[weight].sum(1)
        return by_sign((sign * signal).double().cpu(), batch)

    def _likeliest(self, one: Round, batch: int) -> Counts:
        """By likelihood. Of several local steps, what it reads off simulated clients of known labels corrects it."""
        counts = self._counted(one, batch)
        if self.task.recipe.local_steps == 1 or self.layer.names[1] is None:
            return counts
        best, agreement = counts.counts, 1.0
        for _ in range(SIMULATIONS):
            simulated = self._counted(self._simulated(one, best), batch)
            agreement = min(agreement, float(overlap(best, simulated.counts)))
            best = whole(counts.numbers + best - simulated.numbers, batch).long()
        return replace(counts, counts=best, confidence=counts.confidence * agreement)

    def _share_right(self, one: Round, batch: int) -> float:
        """The share of labels that it reads right off simulated clients with this defense: nobody is surer than that.

        Of one example there is nothing to skew, and its own likelihood says how sure it is.
        """
        if batch > 1 and batch not in self._reached:
            generator = torch.Generator().manual_seed(0)
            classes, right = self.task.domain.classes, 0.0
            for trial in range(TRIALS):
                shares = torch._sample_dirichlet(torch.full((classes,), SKEW), generator=generator)
                labels = torch.multinomial(shares, batch, replacement=True, generator=generator)
                sent = send(self.task, self._drawn(labels), one.params, (trial,))
                granted = {address: sent.drawn[address] for address in one.granted if address in sent.drawn}
                read = self._likeliest(replace(one, observed=sent.observed, granted=granted), batch)
                right += float(overlap(labels.bincount(minlength=classes), read.counts.unsqueeze(0))[0])
            self._reached[batch] = right / TRIALS
        return self._reached.get(batch, 1.0)

    def _counted(self, one: Round, batch: int) -> Counts:
        recipe = self.task.recipe
        evident = evidence(self.task, self.layer, one, batch)
        return counted(evident, self._path(one, recipe.local_steps), recipe, batch)

    def _simulated(self, one: Round, counts: Tensor) -> Round:
        """The round of a client with these labels and drawn inputs, without a defense."""
        records = self._drawn(spelled(counts))
        drawn = self.task.draw(len(records), (0,))
        return replace(one, observed=self.task.update(records, one.params, drawn))

    def _drawn(self, labels: Tensor) -> Records:
        """Records with these labels and inputs that anybody can draw."""
        return Records(drawn_inputs(self.task.domain, len(labels)), labels, self.task.domain)

    def _path(self, one: Round, steps: int) -> list[LastLayer]:
        """The last layer on the straight way through a weight change, which everybody sees."""
        between = [step / steps for step in range(1, steps)]
        states = [{name: p + share * one.observed[name] for name, p in one.params.items()} for share in between]
        return [self.layer, *(LastLayer.of(self.task, state, one.buffers) for state in states)]


def counts_of(task: Task, observation: Observation, rule: Rule = "auto") -> Counts:
    """The counts that an observation's first round betrays."""
    one = observation.rounds[0]
    return LabelReader.of(task, one).counts(one, observation.batch, rule)


def labels_of(task: Task, observation: Observation, rule: Rule = "auto") -> Tensor:
    """The granted labels of an observation, else those that its first round betrays, ``[batch]``."""
    if observation.labels is not None:
        return observation.labels
    one = observation.rounds[0]
    return LabelReader.of(task, one).read(one, observation.batch, rule).labels


def labels_by_restart(task: Task, observations: Sequence[Observation], rule: Rule, restarts: int) -> Tensor:
    """Labels ``[n, restarts, batch]`` (soft ones ``[…, classes]``): where they are not granted, each restart of an
    attack tries the next likely hypothesis, and the log posterior decides."""
    reader: LabelReader | None = None
    every = []
    for observation in observations:
        if observation.labels is not None:
            every.append(torch.stack([observation.labels] * restarts))
            continue
        one = observation.rounds[0]
        reader = reader or LabelReader.of(task, one)
        every.append(torch.stack(reader.read(one, observation.batch, rule).hypotheses(restarts)))
    return torch.stack(every)
