"""Verdicts: what can be said of each defense, and why, in a sentence.

========== =====================================================================================================
exact      a record was recovered to numerical precision
recognisable above the null, and a record above the leak threshold
detectable above the null
no evidence not above the null, although the same adversaries beat their null on the undefended update
too weak   they did not: nothing can be concluded
incomplete a planned cell failed
invalid    the set-up does not replay
========== =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from leakgauge.audit.spec import VerdictSpec
from leakgauge.audit.statistics import Excess, Rate, Scores, best_of, excess, holm, rate_at
from leakgauge.errors import DomainError

Word = Literal["exact", "recognisable", "detectable", "no evidence", "too weak", "incomplete", "invalid"]
ORDER: tuple[Word, ...] = ("no evidence", "detectable", "recognisable", "exact")
NULLS = ("noise", "another")


@dataclass(frozen=True)
class Arms:
    """The scores of one defense: arm → adversary → metric → per record."""

    scores: Mapping[str, Mapping[str, Mapping[str, Scores]]]

    def best(self, arm: str, metric: str) -> Scores:
        """The best over the adversaries, record by record."""
        return best_of([by[metric] for by in self.scores[arm].values()])

    def null(self, metric: str) -> Scores:
        """The best over the same adversaries and over the kinds of null: the harder side for us."""
        return best_of([self.best(arm, metric) for arm in NULLS])


@dataclass(frozen=True)
class Verdict:
    """What an audit says of one defense."""

    defense: str
    attack: Word
    why: str
    excess: Excess | None = None
    p: float | None = None
    rate: Rate | None = None


def verdicts(arms: Mapping[str, Arms], control: Arms, rules: VerdictSpec, metric: str) -> dict[str, Verdict]:
    """One verdict per defense; p-values are corrected for the number of defenses."""
    gains = {name: excess(a.best("real", metric), a.null(metric)) for name, a in arms.items()}
    corrected = holm({name: gain.p for name, gain in gains.items()})
    positive = excess(control.best("real", metric), control.null(metric))
    return {name: _verdict(name, arms[name], gains[name], corrected[name], positive, rules, metric) for name in arms}


def _verdict(
    name: str, arms: Arms, gain: Excess, p: float, positive: Excess, rules: VerdictSpec, metric: str
) -> Verdict:
    real, null = arms.best("real", metric), arms.null(metric)
    sharpest = float(arms.best("real", "psnr").max())
    threshold = getattr(rules.recognisable, metric) or np.inf
    above = int((real >= threshold).sum())
    beaten = p <= rules.significance
    word: Word
    if sharpest >= rules.exact:
        word, why = "exact", f"the most exposed record was recovered at {sharpest:.0f} dB"
    elif beaten and above:
        word = "recognisable"
        why = f"{above} of {len(real)} records reach {metric} {threshold:g}, and the null is beaten (p = {p:.2g})"
    elif beaten:
        word = "detectable"
        why = f"the null is beaten (p = {p:.2g}), but no record reaches {metric} {threshold:g}"
    elif positive.p <= rules.significance:
        word = "no evidence"
        why = f"not above the null (p = {p:.2g}), although the same adversaries beat theirs without a defense"
    else:
        word, why = (
            "too weak",
            f"the adversaries do not beat their null without a defense either (p = {positive.p:.2g})",
        )
    return Verdict(name, word, why, gain, p, rate_at(real, null))


def invalid(name: str, why: str) -> Verdict:
    """The verdict of a defense in a set-up that does not replay the user's client."""
    return Verdict(name, "invalid", why)


def incomplete(name: str) -> Verdict:
    """The verdict of a defense whose cells did not all finish."""
    return Verdict(name, "incomplete", "a planned cell failed; see faults")


def failing(made: Mapping[str, Any], fail_on: str) -> list[str]:
    """The defenses of a result that fail a gate, a line each: at or above ``fail_on``, or not to be relied on."""
    if fail_on not in ORDER[1:]:
        raise DomainError(f"a gate is one of {ORDER[1:]}, got {fail_on!r}", where="fail_on")
    bad = {*ORDER[ORDER.index(fail_on) :], "too weak", "incomplete", "invalid"}
    return [
        f"{d['name']}: {d['attack']['verdict']}: {d['attack']['why']}"
        for checkpoint in made["checkpoints"]
        for d in checkpoint["defenses"]
        if d["attack"]["verdict"] in bad
    ]
