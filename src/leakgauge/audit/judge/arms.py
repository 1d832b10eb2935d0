"""The scores of one defense in every arm, and how they compare with the nulls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from leakgauge.audit.judge.statistics import Scores, alone, best_of, excess
from leakgauge.audit.judge.values import Excess

ByMetric = Mapping[str, Scores]
NULLS = ("another", "noise", "prior")
"""Another record's update, noise in place of the update, a guess from the prior alone."""


@dataclass(frozen=True)
class Arms:
    """The scores of one defense, under a set of adversaries; higher is better in every metric.

    ``scores``: arm → adversary → metric → ``[n]``. ``cross``: adversary → metric → ``[J, n]``, the J unrelated updates
    against every record; ``alike[j, i]`` says that update j came with record i's grants. ``prior``: metric → ``[n]``.
    ``batch`` records share an update. ``unmodelled``: adversary → why it does not model this defense.
    """

    scores: Mapping[str, Mapping[str, ByMetric]]
    cross: Mapping[str, ByMetric]
    alike: npt.NDArray[np.bool_]
    prior: ByMetric
    batch: int = 1
    unmodelled: Mapping[str, str] = field(default_factory=dict)

    @property
    def adversaries(self) -> list[str]:
        return list(self.scores["real"])

    def only(self, adversary: str) -> Arms:
        """The same with one adversary."""
        scores = {arm: {adversary: by[adversary]} for arm, by in self.scores.items()}
        ignored = {name: why for name, why in self.unmodelled.items() if name == adversary}
        return Arms(scores, {adversary: self.cross[adversary]}, self.alike, self.prior, self.batch, ignored)

    def best(self, arm: str, metric: str) -> Scores:
        """The best over the adversaries, record by record; the same set for every arm."""
        return self.prior[metric] if arm == "prior" else best_of([by[metric] for by in self.scores[arm].values()])

    def winner(self, arm: str, metric: str, record: int) -> str:
        """The adversary with the best score of a record; of equal ones, that with the best by the other metrics."""
        by = self.scores[arm]
        ranks = {name: (float(s[metric][record]), *(float(s[m][record]) for m in s), name) for name, s in by.items()}
        return max(ranks, key=lambda name: ranks[name])

    def null(self, metric: str) -> Scores:
        """The best of the three nulls: what a reconstruction must exceed to count as one."""
        return best_of([self.best(arm, metric) for arm in NULLS])

    def unrelated(self, metric: str) -> Scores:
        """``[J, n]``: the best over the adversaries for every unrelated update and record."""
        return best_of([by[metric] for by in self.cross.values()])

    def exposure(self, metric: str) -> Scores:
        """The chance that an unrelated update reaches this record's score, ``[n]``.

        Each adversary against its own null scores, corrected for their number: the best of several scores is far from
        normal where one adversary hardly moves and another sometimes exceeds it.
        """
        real, by = self.scores["real"], self.cross
        each = [alone(best_of([real[a][metric]]), best_of([by[a][metric]]), self.alike) for a in self.adversaries]
        corrected: Scores = np.minimum(1.0, len(each) * np.minimum.reduce([np.nan_to_num(p, nan=1.0) for p in each]))
        return corrected

    def recognised(self, metric: str, threshold: float) -> int:
        """How many records reach a threshold and beat every null."""
        real = self.best("real", metric)
        return int(((real >= threshold) & (real > self.null(metric))).sum())

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
