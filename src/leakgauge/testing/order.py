"""The law of order: adding noise, pruning more, hiding more never raises the score beyond its interval.

A pair is a weaker and a stronger client of the same records. The score of the weaker one counts every adversary that an
audit counts: its own, and where the stronger defense is the weaker one with something on top
(:func:`~leakgauge.audit.judge.order.weakens`) the stronger one's, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from leakgauge.adversary import Attack
from leakgauge.audit.judge.order import weakens
from leakgauge.defenses import Protection, protection
from leakgauge.intervals import mean_interval
from leakgauge.metrics import of as metrics_of
from leakgauge.observation import observe
from leakgauge.task import Task
from leakgauge.types import Records, Threat

CONFIDENCE = 0.99


@dataclass(frozen=True)
class Ordered:
    """The scores of a pair, record by record; ``own`` are the weaker client's by its own adversary."""

    weaker: str
    stronger: str
    own: tuple[float, ...]
    score: tuple[float, ...]
    above: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether the stronger client's score is not above the weaker one's, beyond the interval."""
        return _not_above(self.above, self.score)

    @property
    def holds_alone(self) -> bool:
        """The same of the weaker client's own adversary."""
        return _not_above(self.above, self.own)


def _not_above(stronger: Sequence[float], weaker: Sequence[float]) -> bool:
    gap = np.asarray(stronger) - np.asarray(weaker)
    return not mean_interval(gap, CONFIDENCE).low > 0


def scores_of(
    task: Task, records: Records, attack: Attack, threat: Threat | None = None, *, seed: int = 0
) -> np.ndarray:
    """The score of every record by the metric that judges its domain."""
    threat = (threat or Threat()).about(task.nuisances)
    judge = metrics_of(task.domain, {}).judge
    answer = attack(task, observe(task, records, threat=threat, seed=seed), seed=seed)
    scores: np.ndarray = judge(answer.inputs.flatten(0, 1), records.inputs).double().numpy()
    return scores


def ordered(
    task: Task,
    records: Records,
    weaker: str | Protection,
    stronger: str | Protection,
    attack: Attack,
    threat: Threat | None = None,
    *,
    seed: int = 0,
) -> Ordered:
    """Attack both clients of a pair with the same adversary, which adapts to each."""
    low, high = protection(weaker), protection(stronger)
    own, above = (scores_of(replace(task, protection=how), records, attack, threat, seed=seed) for how in (low, high))
    score = np.maximum(own, above) if weakens(low, high) else own
    return Ordered(repr(low), repr(high), *(tuple(map(float, values)) for values in (own, score, above)))


def order_holds(
    task: Task, records: Records, weaker: str | Protection, stronger: str | Protection, attack: Attack, *, seed: int = 0
) -> None:
    """The law for one pair; records in batches of one."""
    pair = ordered(task, records, weaker, stronger, attack, seed=seed)
    means = np.mean(pair.above), np.mean(pair.score)
    assert pair.holds, f"{pair.stronger} scores {means[0]:.3f}, above {means[1]:.3f} of {pair.weaker}"


BASES = ("identity()", "clip(norm=1.0)", "prune(p=0.5)", "gaussian(std=0.001)", "random_prune(p=0.3)")
"""What clients do before something is put on top."""
TOPS = (
    "clip(norm=0.5)",
    "gaussian(std=0.01)",
    "laplace(scale=0.01)",
    "prune(p=0.9)",
    "random_prune(p=0.5)",
    "topk(keep=0.2)",
    "quantise(levels=4)",
    "sign()",
    "vmf(kappa=1000.0)",
    "clip(norm=1.0) | gaussian(std=0.1)",
)
MORE = (
    ("gaussian(std=0.001)", "gaussian(std=0.1)"),
    ("laplace(scale=0.001)", "laplace(scale=0.1)"),
    ("prune(p=0.5)", "prune(p=0.9)"),
    ("random_prune(p=0.5)", "random_prune(p=0.9)"),
    ("topk(keep=0.5)", "topk(keep=0.1)"),
    ("quantise(levels=16)", "quantise(levels=2)"),
    ("vmf(kappa=10000.0)", "vmf(kappa=100.0)"),
    ("identity()", "lrp()"),
    ("identity()", "ada_lrp()"),
    ("lrp()", "lrp() | gaussian(std=0.1)"),
    ("identity()", "clip(norm=0.5, per='layer')"),
    ("identity()", "clip(norm=0.5, per='example')"),
    ("clip(norm=1.0) | gaussian(std=0.01)", "clip(norm=1.0) | gaussian(std=3.0)"),
    ("identity()", "clip(norm=1.0) | gaussian(std=3.0)"),
)


def pairs() -> Iterator[tuple[str, str]]:
    """Generated pairs: every part on top of every base, and more of the same."""
    for base, top in product(BASES, TOPS):
        yield base, top if base == "identity()" else f"{base} | {top}"
    yield from MORE
