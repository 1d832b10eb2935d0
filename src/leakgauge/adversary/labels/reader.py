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
from leakgauge.adversary.labels.layer import LastLayer
from leakgauge.adversary.labels.likelihood import counted
from leakgauge.adversary.labels.rate import first_rate, fitted_rate, hides_rate, simulated, with_drawn_inputs
from leakgauge.adversary.labels.rules import by_sign, unique
from leakgauge.errors import ModelError
from leakgauge.observation import Observation, Round, send
from leakgauge.task import Task

Rule = Literal["auto", "bias", "rows", "unique"]
"""``auto``: counts by likelihood, of everything that the last layer says; the others are published rules."""
SIMULATIONS = 3
"""Rounds of correction by simulated clients, where there are several local steps."""
REFITS = 1
"""How often a hidden learning rate is fitted again to the labels that were read; more of it read no more labels."""
TRIALS, SKEW = 4, 0.3
"""Simulated clients on which the reader measures itself, and the Dirichlet law of their counts."""


@dataclass(frozen=True)
class LabelReader:
    """Reads the labels of updates that were computed at one state of the model."""

    task: Task
    layer: LastLayer
    _reached: dict[tuple[int, float | None], float] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, task: Task, one: Round) -> LabelReader:
        """The reader at the state of a round."""
        return cls(task, LastLayer.of(task, one.params, one.buffers))

    def counts(self, one: Round, batch: int, rule: Rule = "auto") -> Counts:
        """How many examples of each class the update of ``batch`` examples gives away, and how sure that is."""
        if rule != "auto":
            return self.read(one, batch, rule)
        counts, rate = self._counts_and_rate(one, batch)
        return replace(counts, confidence=min(counts.confidence, self._share_right(one, batch, rate)))

    def read(self, one: Round, batch: int, rule: Rule = "auto") -> Counts:
        """The counts without simulated clients: as sure as the likelihood is, which may be too sure."""
        guards.choice(rule, "rule", "labels", get_args(Rule))
        weight, bias = self.layer.names
        if rule == "auto":
            return self._counts_and_rate(one, batch)[0]
        if rule == "bias" and bias is None:
            raise ModelError("the last layer has no bias", where="labels", remedy='use rule="auto"')
        sign = -1.0 if self.task.recipe.shares == "change" else 1.0  # a weight change points against the gradient
        if rule == "unique":
            return unique(sign * one.observed[weight], batch)
        signal = one.observed[bias] if rule == "bias" and bias is not None else one.observed[weight].sum(1)
        return by_sign((sign * signal).double().cpu(), batch)

    def _counts_and_rate(self, one: Round, batch: int) -> tuple[Counts, float | None]:
        """The likeliest counts and, where it is hidden, the learning rate: each is fitted to the other in turn."""
        if not hides_rate(self.task, one):
            return self._likeliest(one, batch, None), None
        rate = first_rate(self.task, one, batch)
        counts = self._likeliest(one, batch, rate)
        for _ in range(REFITS):
            rate = fitted_rate(self.task, one, counts.labels, rate)
            counts = self._likeliest(one, batch, rate)
        return counts, rate

    def _likeliest(self, one: Round, batch: int, rate: float | None) -> Counts:
        """By likelihood. Of several local steps, what it reads off simulated clients of known labels corrects it.

        ``rate`` replaces that of the recipe where it is hidden.
        """
        counts = self._counted(one, batch, rate)
        if self.task.recipe.local_steps == 1 or self.layer.names[1] is None:
            return counts
        best, agreement = counts.counts, 1.0
        for _ in range(SIMULATIONS):
            update = simulated(self.task, one, spelled(best), rate)
            if not all(bool(value.isfinite().all()) for value in update.values()):
                break  # at a fitted rate a simulated client may diverge, where the real one did not
            again = self._counted(replace(one, observed=update), batch, rate)
            agreement = min(agreement, float(overlap(best, again.counts)))
            best = whole(counts.numbers + best - again.numbers, batch).long()
        return replace(counts, counts=best, confidence=counts.confidence * agreement)

    def _share_right(self, one: Round, batch: int, rate: float | None) -> float:
        """The share of labels that it reads right off simulated clients with this defense: nobody is surer than that.

        Of one example there is nothing to skew, and its own likelihood says how sure it is. A rate that is hidden is
        fitted to each of these clients, too.
        """
        if batch > 1 and (batch, rate) not in self._reached:
            generator = torch.Generator().manual_seed(0)
            classes, right = self.task.domain.classes, 0.0
            for trial in range(TRIALS):
                shares = torch._sample_dirichlet(torch.full((classes,), SKEW), generator=generator)
                labels = torch.multinomial(shares, batch, replacement=True, generator=generator)
                sent = send(self.task, with_drawn_inputs(self.task, labels), one.params, (trial,), rate=rate)
                granted = {address: sent.drawn[address] for address in one.granted if address in sent.drawn}
                read = self.read(replace(one, observed=sent.observed, granted=granted), batch)
                right += float(overlap(labels.bincount(minlength=classes), read.counts.unsqueeze(0))[0])
            self._reached[batch, rate] = right / TRIALS
        return self._reached.get((batch, rate), 1.0)

    def _counted(self, one: Round, batch: int, rate: float | None) -> Counts:
        recipe = self.task.recipe if rate is None else replace(self.task.recipe, learning_rate=rate)
        evident = evidence(self.task, recipe, self.layer, one, batch)
        return counted(evident, self._path(one, recipe.local_steps), recipe, batch)

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
