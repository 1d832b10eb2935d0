"""The bound of a defense beside what the attacks reached: the risk corridor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from leakgauge import metrics
from leakgauge.audit.judge.statistics import Scores
from leakgauge.audit.prepare import Prepared
from leakgauge.bounds import BestGuess, Corridor, Figure, bound_of_task, corridor, measured_guess
from leakgauge.defenses import Gaussian, Laplace, UpdatePart, parts_of
from leakgauge.study.spec import Spec
from leakgauge.task import Task

HALF = 0.5
CONFIDENCE = 0.99
"""Of the best guess, and of all comparisons of an audit with their ceilings together."""


@dataclass(frozen=True)
class Ceilings:
    """What the bounds of an audit share: the best guess at its leak threshold, and the number of comparisons."""

    spec: Spec
    prepared: Prepared
    metric: str
    guess: BestGuess | None
    comparisons: int

    def _enough(self, task: Task) -> dict[str, Any] | None:
        """The least noise of this kind that proves a ceiling of one half, by bisection; None where none does."""
        update, top = task.protection.update, 1e6

        def proven(factor: float) -> bool:
            made = replace(task.protection, update=_scaled(update, factor))
            found = bound_of_task(task.protect(made), rounds=self.spec.bound.rounds, guess=self.guess).ceiling.value
            return found is not None and found <= HALF

        noisy = any(isinstance(part, Gaussian | Laplace) for part in parts_of(update))
        if self.guess is None or not noisy or not proven(top):
            return None
        low, high = 1e-6, top
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if proven(middle) else (middle, high)
        return {"expression": repr(replace(task.protection, update=_scaled(update, high))), "ceiling": HALF}

    def of(self, defense: str, real: Mapping[str, Mapping[str, Scores]] | None) -> dict[str, Any]:
        """The bound of a defense, and the corridor up to it from the adversary with the most successes.

        A ceiling is about one adversary, not about the best of several chosen with the truth in hand.
        """
        threshold = getattr(self.spec.verdict.recognisable, self.metric)
        task = self.prepared.task.protect(defense)
        given = self.spec.bound
        bound = bound_of_task(
            task, rounds=given.rounds, delta=given.delta, guess=self.guess, grants=self.spec.threat.grants
        )
        said: Corridor | None = None
        if real is not None and threshold is not None:
            hits = max(int((by[self.metric] >= threshold).sum()) for by in real.values())
            trials = len(next(iter(real.values()))[self.metric])
            level = 1 - (1 - CONFIDENCE) / self.comparisons
            said = corridor(hits, trials, bound.ceiling.value, confidence=level)
        return {
            "ceiling": bound.ceiling.value,
            "why": bound.ceiling.sentence,
            "assumptions": list(dict.fromkeys((*bound.ceiling.assumptions, *bound.epsilon.assumptions))),
            "unit": bound.unit,
            "rounds": bound.rounds,
            "enough": self._enough(task),
            "log_capacity": _figure(bound.log_capacity),
            "epsilon": _figure(bound.epsilon),
            "corridor": None
            if said is None
            else {
                "success": said.success,
                "low": said.low,
                "high": said.high,
                "risk": said.risk,
                "state": said.state,
                "sentence": said.sentence,
            },
        }


def _scaled(update: UpdatePart, factor: float) -> UpdatePart:
    """The same chain with its noise made ``factor`` times as strong, to two digits."""
    made = []
    for part in parts_of(update):
        if isinstance(part, Gaussian):
            part = replace(part, std=_two_digits(part.std * factor))
        elif isinstance(part, Laplace):
            part = replace(part, scale=_two_digits(part.scale * factor))
        made.append(part)
    return reduce(or_, made)


def _two_digits(value: float) -> float:
    """Rounded up: less noise would prove less."""
    if not 0 < value < math.inf:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(round(value / step, 9)) * step:.2g}")


def _figure(figure: Figure) -> dict[str, Any]:
    finite = figure.value is not None and math.isfinite(figure.value)
    return {"value": figure.value if finite else None, "sentence": figure.sentence}


def ceilings(spec: Spec, prepared: Prepared, metric: str) -> Ceilings:
    """The best guess over the reference records, once for all defenses."""
    threshold = getattr(spec.verdict.recognisable, metric)
    score = metrics.ssim if metric == "ssim" else metrics.psnr
    enough = threshold is not None and len(prepared.reference) >= 4
    guess = (
        measured_guess(
            prepared.reference,
            score,
            threshold,
            labels=prepared.labels_granted,
            confidence=CONFIDENCE,
            seed=spec.seed,
        )
        if enough
        else None
    )
    cells = len(spec.defenses) * len(set(spec.checkpoints.train_steps)) * len(spec.adversaries)
    return Ceilings(spec, prepared, metric, guess, cells)
