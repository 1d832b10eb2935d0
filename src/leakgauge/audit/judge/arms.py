"""The scores of one defense in every arm, and how they compare with the nulls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from leakgauge.audit.judge.single import Nearness, Places, exposure, single_p
from leakgauge.audit.judge.statistics import Scores, best_of, excess
from leakgauge.audit.judge.values import Excess
from leakgauge.meaning import Meaning

ByMetric = Mapping[str, Scores]
NULLS = {
    "another": "the update of another record",
    "noise": "noise in place of the update",
    "prior": "the guess without an update",
}
"""What a recognised record must beat, each null in words."""


@dataclass(frozen=True)
class Nearly:
    """The best score of a record that was not recognised; ``null`` reaches ``floor`` there, which is no less."""

    score: float
    null: str | None = None
    floor: float = 0.0

    def text(self, judge: Meaning) -> str:
        """``the best ssim is 0.53, and the guess without an update has 0.61 there``."""
        best = f"the best {judge.label} is {judge.text(self.score)}"
        return f"{best}, and {NULLS[self.null]} has {judge.text(self.floor)} there" if self.null else best


@dataclass(frozen=True)
class Arms:
    """The scores of one defense, under a set of adversaries; higher is better, but in the metrics of ``lower``.

    ``scores``: arm → adversary → metric → ``[n]``. ``cross``: adversary → metric → ``[J, m]``, the J unrelated updates
    against the first m records; ``alike[j, i]`` says that update j came with record i's grants. ``prior``: metric →
    ``[n]``. ``batch`` records share an update. ``nearness`` of each adversary, and the ``groups`` of peers, are for the
    test of one record by itself; scores against encodings have none.
    ``unmodelled``: adversary → why it does not model this defense.
    """

    scores: Mapping[str, Mapping[str, ByMetric]]
    cross: Mapping[str, ByMetric]
    alike: npt.NDArray[np.bool_]
    prior: ByMetric
    batch: int = 1
    nearness: Mapping[str, Nearness] = field(default_factory=dict)
    groups: Places = field(default_factory=lambda: np.zeros(0, np.int64))
    labels: Mapping[str, int] = field(default_factory=dict)
    """How many labels each adversary has right."""
    unmodelled: Mapping[str, str] = field(default_factory=dict)
    lower: frozenset[str] = frozenset()
    """The metrics by which lower scores are better."""

    @property
    def adversaries(self) -> list[str]:
        return list(self.scores["real"])

    def only(self, adversary: str) -> Arms:
        """The same with one adversary."""
        scores = {arm: {adversary: by[adversary]} for arm, by in self.scores.items()}
        cross, nearness = {adversary: self.cross[adversary]}, {adversary: self.nearness[adversary]}
        ignored = {name: why for name, why in self.unmodelled.items() if name == adversary}
        return replace(self, scores=scores, cross=cross, nearness=nearness, unmodelled=ignored)

    def best(self, arm: str, metric: str) -> Scores:
        """The best over the adversaries, record by record; the same set for every arm."""
        if arm == "prior":
            return self.prior[metric]
        return best_of([by[metric] for by in self.scores[arm].values()], lower=metric in self.lower)

    def winner(self, arm: str, metric: str, record: int) -> str:
        """The adversary with the best score of a record; of equal ones, that with the best by the other metrics."""
        by = self.scores[arm]
        signs = {m: -1.0 if m in self.lower else 1.0 for s in by.values() for m in s}
        ranks = {n: (*(signs[m] * float(s[m][record]) for m in (metric, *s)), n) for n, s in by.items()}
        return max(ranks, key=lambda name: ranks[name])

    def null(self, metric: str) -> Scores:
        """The best of the three nulls: what a reconstruction must exceed to count as one."""
        return best_of([self.best(arm, metric) for arm in NULLS], lower=metric in self.lower)

    def unrelated(self, metric: str) -> Scores:
        """``[J, m]``: the best over the adversaries for every unrelated update and the first m records."""
        return best_of([by[metric] for by in self.cross.values()], lower=metric in self.lower)

    def exposure(self) -> Scores:
        """The share of each record's peers that its update is at least as near to, ``[n]``."""
        return exposure(list(self.nearness.values()), self.groups)

    def single(self) -> float:
        """The p-value of the most exposed record by itself."""
        return single_p(self.nearness.values(), self.groups, batch=self.batch)

    def recognised(self, metric: str, threshold: float) -> npt.NDArray[np.bool_]:
        """Which records reach a threshold and beat every null."""
        real = self.best("real", metric)
        reach: npt.NDArray[np.bool_] = (real >= threshold) & (real > self.null(metric))
        return reach

    def nearly(self, metric: str, threshold: float) -> Nearly:
        """The best record that is not recognised, and the best null where that stood in its way."""
        real, null = self.best("real", metric), self.null(metric)
        missed = np.flatnonzero(~self.recognised(metric, threshold))
        if not len(missed):
            return Nearly(float(real.max()))
        record = missed[real[missed].argmax()]
        arm = max(NULLS, key=lambda name: float(self.best(name, metric)[record]))
        blocked = real[record] <= null[record]
        return Nearly(float(real[record]), arm, float(null[record])) if blocked else Nearly(float(real[record]))

    def excess(self, metric: str, null: str = "another") -> Excess:
        """The gain over one null; its unit is the update, for the records of a batch share one."""
        real, other = (self.by_update(self.best(arm, metric)) for arm in ("real", null))
        return excess(real, other)

    def by_update(self, scores: Scores) -> Scores:
        """The mean score of each update."""
        means: Scores = scores.reshape(-1, self.batch).mean(1)
        return means


@dataclass(frozen=True)
class Encodings:
    """The scores against what the client trained on; ``lone``: an encoding shows one record to the eye."""

    arms: Arms
    lone: bool

    @property
    def called(self) -> str:
        return "transformed record" if self.lone else "encoding"
