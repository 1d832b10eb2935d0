"""The bound of a defense beside what the attacks reached: the risk corridor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from leakgauge.audit.judge.statistics import Scores
from leakgauge.audit.judge.values import Bound, Corridor, Enough, Figure
from leakgauge.bounds import BestGuess, bound_of, bound_of_task, corridor, measured_guess
from leakgauge.bounds import Figure as Proven
from leakgauge.defenses import Protection, UpdatePart, parts_of
from leakgauge.study.study import Study
from leakgauge.task import Task

HALF = 0.5
CONFIDENCE = 0.99
"""Of the best guess, and of all comparisons of an audit with their ceilings together."""


@dataclass(frozen=True)
class Ceilings:
    """What the bounds of an audit share: the best guess without an update, and how many adversaries are compared.

    ``threshold`` of ``metric`` is where success begins; ``comparisons`` is how many corridors are drawn in all.
    """

    study: Study
    metric: str
    threshold: float
    guess: BestGuess | None
    comparisons: int
    rounds: int
    delta: float
    grants: Sequence[str]

    def of(self, defense: Protection, real: Mapping[str, Mapping[str, Scores]] | None) -> Bound:
        """The bound of a defense, and the corridor up to it from the adversary with the most successes.

        A ceiling is about one adversary, not about the best of several chosen with the truth in hand.
        """
        task = self.study.under(defense)
        proof = bound_of_task(task, rounds=self.rounds, delta=self.delta, guess=self.guess, grants=self.grants)
        return Bound(
            ceiling=proof.ceiling.value,
            why=proof.ceiling.sentence,
            assumptions=tuple(dict.fromkeys((*proof.ceiling.assumptions, *proof.epsilon.assumptions))),
            unit=proof.unit,
            rounds=proof.rounds,
            enough=self._enough(task),
            log_capacity=_figure(proof.log_capacity),
            epsilon=_figure(proof.epsilon),
            corridor=self._corridor(real, proof.ceiling.value) if real else None,
        )

    def _corridor(self, real: Mapping[str, Mapping[str, Scores]], ceiling: float | None) -> Corridor:
        scores = [by[self.metric] for by in real.values()]
        hits = max(int((each >= self.threshold).sum()) for each in scores)
        level = 1 - (1 - CONFIDENCE) / self.comparisons
        return Corridor.model_validate(corridor(hits, len(scores[0]), ceiling, confidence=level), from_attributes=True)

    def _enough(self, task: Task) -> Enough | None:
        """The least noise of this kind that proves a ceiling of one half, by bisection; None where none does."""
        update, top, recipe = task.protection.update, 1e6, task.recipe
        if self.guess is None or _scaled(update, top) == update:
            return None
        sizes = {name: p.numel() for name, p in task.params.items()}  # louder noise changes none of them

        def proves(factor: float) -> bool:
            louder = replace(task.protection, update=_scaled(update, factor))
            proof = bound_of(
                louder, sizes, batch=recipe.batch, reduction=recipe.reduction, rounds=self.rounds, guess=self.guess
            )
            return proof.ceiling.value is not None and proof.ceiling.value <= HALF

        if not proves(top):
            return None
        low, high = 1e-6, top
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if proves(middle) else (middle, high)
        return Enough(expression=repr(replace(task.protection, update=_scaled(update, high))), ceiling=HALF)


def _scaled(update: UpdatePart, factor: float) -> UpdatePart:
    """The same chain with its noise made ``factor`` times as strong, to two digits."""
    return reduce(or_, (_louder(part, factor) for part in parts_of(update)))


def _louder(part: UpdatePart, factor: float) -> UpdatePart:
    law = part.noise_law
    return part if law is None else part.with_noise(_two_digits(law.size * factor)) or part


def _two_digits(value: float) -> float:
    """Rounded up: less noise would prove less."""
    if not 0 < value < math.inf:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(round(value / step, 9)) * step:.2g}")


def _figure(figure: Proven) -> Figure:
    finite = figure.value is not None and math.isfinite(figure.value)
    return Figure(value=figure.value if finite else None, sentence=figure.sentence)


def ceilings(study: Study) -> Ceilings:
    """The best guess over the reference records, once for all defenses."""
    spec = study.spec
    measures = study.metrics
    guess = None
    if len(study.reference) >= 4:
        guess = measured_guess(
            study.reference,
            measures.judge,
            measures.threshold,
            labels=study.labels_granted,
            confidence=CONFIDENCE,
            seed=spec.seed,
        )
    comparisons = len(spec.defenses) * len(set(spec.checkpoints.train_steps)) * len(spec.adversaries)
    return Ceilings(
        study,
        measures.judge.meaning.name,
        measures.threshold,
        guess,
        comparisons,
        study.bound_rounds,
        spec.bound.delta,
        spec.threat.grants,
    )
