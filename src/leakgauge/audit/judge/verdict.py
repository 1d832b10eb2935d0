"""Verdicts: what can be said of each defense, and why, in a sentence.

============ ===================================================================================================
exact        a record was recovered to numerical precision
recognisable above the null, and a record above the leak threshold
detectable   above the null
no evidence  not above the null, although without the defense the same adversaries recognise records
too weak     they do not: nothing can be concluded
incomplete   a planned cell failed
invalid      the set-up does not replay
============ ===================================================================================================

"Above the null" compares with the update of another record: the one null that is exchangeable with the truth when
nothing leaks, so that the test over all records holds its level exactly (that of one record by itself rests on
normal scores; evidence: false alarms). Noise in place of the update and a guess from the prior alone are
easier or harder to beat for reasons that have nothing to do with leakage; they are reported beside it, and a record
counts as recognised only if it beats all three.

Under an input stage the client trains on encodings of its records, and scores against those are a second finding. An
encoding that comes back from the update is a leak whether or not it could be undone: at least ``detectable``, and
``recognisable`` where a recognised encoding shows one record to the eye (a transformed image).

The positive control asks for more than a p-value: an adversary that gains a hundredth without a defense beats its null,
and would miss nearly every leak behind one. Its silence counts only if it recognises a record without the defense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from leakgauge.audit.judge.statistics import Excess, Rate, Scores, alone, best_of, excess, holm, rate_at
from leakgauge.errors import DomainError
from leakgauge.study.spec import VerdictSpec

Word = Literal["exact", "recognisable", "detectable", "no evidence", "too weak", "incomplete", "invalid"]
ORDER: tuple[Word, ...] = ("no evidence", "detectable", "recognisable", "exact")
NULLS = ("another", "noise", "prior")
"""Another record's update, noise in place of the update, a guess from the prior alone."""


@dataclass(frozen=True)
class Arms:
    """The scores of one defense, under a set of adversaries.

    ``scores``: arm → adversary → metric → ``[n]``. ``cross``: adversary → metric → ``[J, n]``, the J unrelated updates
    against every record; ``alike[j, i]`` says that update j came with record i's grants. ``prior``: metric → ``[n]``.
    ``batch`` records share an update.
    """

    scores: Mapping[str, Mapping[str, Mapping[str, Scores]]]
    cross: Mapping[str, Mapping[str, Scores]]
    alike: npt.NDArray[np.bool_]
    prior: Mapping[str, Scores]
    batch: int = 1

    def only(self, adversary: str) -> Arms:
        """The same with one adversary."""
        scores = {arm: {adversary: by[adversary]} for arm, by in self.scores.items()}
        return Arms(scores, {adversary: self.cross[adversary]}, self.alike, self.prior, self.batch)

    def best(self, arm: str, metric: str) -> Scores:
        """The best over the adversaries, record by record; the same set for every arm."""
        return self.prior[metric] if arm == "prior" else best_of([by[metric] for by in self.scores[arm].values()])

    def null(self, metric: str) -> Scores:
        """The best of the three nulls: what a reconstruction must exceed to count as one."""
        return best_of([self.best(arm, metric) for arm in NULLS])

    def unrelated(self, metric: str) -> Scores:
        """``[J, n]``: the best over the adversaries for every unrelated update and record."""
        return best_of([by[metric] for by in self.cross.values()])

    def exposure(self, metric: str) -> Scores:
        """The chance that an unrelated update reaches this record's score, ``[n]``."""
        return alone(self.best("real", metric), self.unrelated(metric), self.alike)

    def excess(self, metric: str, null: str = "another") -> Excess:
        """The gain over one null; its unit is the update, for the records of a batch share one."""
        real, other = (self.best(arm, metric).reshape(-1, self.batch).mean(1) for arm in ("real", null))
        return excess(real, other)


@dataclass(frozen=True)
class Finding:
    """What the scores of one set of adversaries say against the null, before any correction.

    ``p`` joins two tests at half the level each: all records together, and the most exposed one by itself, for a mean
    over records is blind to a single leak.
    """

    gains: Mapping[str, Excess]
    single: float
    recognised: int
    records: int
    best: float

    @property
    def p(self) -> float:
        return min(1.0, 2 * min(self.gains["another"].p, self.single))


def find(arms: Arms, threshold: float, metric: str) -> Finding:
    """Compare the update with the nulls."""
    real = arms.best("real", metric)
    seen = (real >= threshold) & (real > arms.null(metric))
    single = float(arms.exposure(metric).min()) * len(real)
    gains = {null: arms.excess(metric, null) for null in NULLS}
    return Finding(gains, min(1.0, single), int(seen.sum()), len(real), float(real.max()))


@dataclass(frozen=True)
class Encodings:
    """The scores against what the client trained on; ``lone``: an encoding shows one record to the eye."""

    arms: Arms
    lone: bool

    @property
    def called(self) -> str:
        return "transformed record" if self.lone else "encoding"


@dataclass(frozen=True)
class Seen:
    """What the scores against encodings say. The null's client draws its encodings alike, record for record."""

    called: str
    lone: bool
    gain: Excess
    recognised: int
    records: int
    mean: float
    best: float
    p: float = 1.0

    def why(self, metric: str, threshold: float) -> str:
        """What was found, and what it means for the records."""
        if not self.recognised:
            return f"scored against {self.called}s the null is beaten ({_p(self.p)}), though none is recognised"
        reach, beat = ("reaches", "beats") if self.recognised == 1 else ("reach", "beat")
        means = (
            "who sees one sees the record"
            if self.lone
            else "the update gives it away, and only the encoding hides the record"
        )
        many = f"{self.recognised} of {self.records} {self.called}s"
        return f"{many} {reach} {metric} {threshold:g} and {beat} every null ({_p(self.p)}): {means}"


def look(encodings: Encodings, threshold: float, metric: str) -> Seen:
    """Compare the update with the nulls, scored against encodings."""
    arms = encodings.arms
    real = arms.best("real", metric)
    seen = int(((real >= threshold) & (real > arms.null(metric))).sum())
    gain, mean, best = arms.excess(metric), float(real.mean()), float(real.max())
    return Seen(encodings.called, encodings.lone, gain, seen, len(real), mean, best)


@dataclass(frozen=True)
class Control:
    """The positive control: what the adversaries find in the undefended update of the same records."""

    together: Finding
    each: Mapping[str, Finding]
    works: tuple[str, ...]
    """The adversaries that beat their null and recognise a record, each by itself."""


def control(arms: Arms, rules: VerdictSpec, metric: str) -> Control:
    """Every adversary by itself, and all together, without a defense."""
    threshold = _threshold(rules, metric)
    each = {name: find(arms.only(name), threshold, metric) for name in next(iter(arms.scores.values()))}
    p = holm({name: finding.p for name, finding in each.items()})
    works = tuple(name for name, finding in each.items() if p[name] <= rules.significance and finding.recognised)
    return Control(find(arms, threshold, metric), each, works)


@dataclass(frozen=True)
class Verdict:
    """What an audit says of one defense."""

    defense: str
    attack: Word
    why: str
    finding: Finding | None = None
    p: float | None = None
    rate: Rate | None = None
    control: Control | None = field(default=None, repr=False)
    seen: Seen | None = None


def verdicts(
    arms: Mapping[str, Arms],
    controls: Mapping[str, Arms],
    rules: VerdictSpec,
    metric: str,
    encodings: Mapping[str, Encodings] | None = None,
) -> dict[str, Verdict]:
    """One verdict per key of ``arms``; p-values are corrected for their number and that of ``encodings``."""
    threshold = _threshold(rules, metric)
    found = {key: find(a, threshold, metric) for key, a in arms.items()}
    early = {key: look(e, threshold, metric) for key, e in (encodings or {}).items()}
    p = {("record", key): finding.p for key, finding in found.items()}
    corrected = holm({**p, **{("encoding", key): seen.gain.p for key, seen in early.items()}})
    known = {id(a): control(a, rules, metric) for a in {id(a): a for a in controls.values()}.values()}
    said = {}
    for key in arms:
        positive = known[id(controls[key])]
        said[key] = _verdict(key, arms[key], found[key], corrected["record", key], positive, rules, metric)
        if key in early:
            said[key] = _at_least(said[key], replace(early[key], p=corrected["encoding", key]), rules, metric)
    return said


def _at_least(said: Verdict, seen: Seen, rules: VerdictSpec, metric: str) -> Verdict:
    """An encoding that was found counts, also where the adversaries at hand could not undo it."""
    word: Word = "recognisable" if seen.recognised and seen.lone else "detectable"
    found = seen.p <= rules.significance and (seen.recognised or _traces(said.control, rules))
    if not found or (said.attack in ORDER and ORDER.index(said.attack) >= ORDER.index(word)):
        more = found and said.finding is not None and seen.recognised > said.finding.recognised
        also = f"; of the {seen.called}s {seen.recognised} of {seen.records}" if more else ""
        return replace(said, why=said.why + also, seen=seen)
    why = f"{seen.why(metric, _threshold(rules, metric))}; of the records themselves: {said.why}"
    return replace(said, attack=word, why=why, seen=seen)


def _traces(positive: Control | None, rules: VerdictSpec) -> bool:
    """Whether the adversaries find anything without the defense; else a trace behind it is chance: it adds nothing."""
    return positive is not None and (bool(positive.works) or positive.together.p <= rules.significance)


def _verdict(
    name: str, arms: Arms, found: Finding, p: float, positive: Control, rules: VerdictSpec, metric: str
) -> Verdict:
    threshold = _threshold(rules, metric)
    real, pool = arms.best("real", metric), arms.unrelated(metric)[arms.alike]
    psnr, floor = arms.best("real", "psnr"), arms.null("psnr")
    exact = psnr[(psnr >= rules.exact) & (floor < rules.exact)]
    beaten = p <= rules.significance
    word: Word
    if len(exact):
        word = "exact"
        many = f"{len(exact)} of {len(psnr)} records"
        was = "was" if len(exact) == 1 else "were"
        why = f"{many} {was} recovered to numerical precision, the best at {exact.max():.0f} dB"
    elif beaten and found.recognised:
        word = "recognisable"
        many = f"{found.recognised} of {found.records} records"
        one = found.recognised == 1
        reach, beat = ("reaches", "beats") if one else ("reach", "beat")
        why = f"{many} {reach} {metric} {threshold:g} and {beat} every null ({_p(p)})"
    elif beaten and _traces(positive, rules):
        word = "detectable"
        why = f"the null is beaten ({_p(p)}), but no record reaches {metric} {threshold:g} and beats every null"
    else:
        word, why = _silent(p, positive, metric)
    return Verdict(name, word, why, found, p, rate_at(real, pool) if len(pool) else None, positive)


def _silent(p: float, positive: Control, metric: str) -> tuple[Word, str]:
    """No leak was found: is that worth anything?"""
    works, idle = positive.works, [name for name in positive.each if name not in positive.works]
    best = f"the best {metric} is {positive.together.best:.2g}"
    if not works:
        return (
            "too weak",
            f"without a defense the adversaries recognise no record either ({best}, {_p(positive.together.p)}): give "
            "them more steps or restarts, or an easier set-up",
        )
    besides = f"; {', '.join(idle)} did not, and adds nothing" if idle else ""
    return (
        "no evidence",
        f"not above the null ({_p(p)}), although without a defense {' and '.join(works)} "
        f"{'recognise' if len(works) > 1 else 'recognises'} {positive.together.recognised} of "
        f"{positive.together.records} records{besides}",
    )


def _threshold(rules: VerdictSpec, metric: str) -> float:
    return getattr(rules.recognisable, metric) or np.inf


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def invalid(name: str, why: str) -> Verdict:
    """The verdict of a defense in a set-up that does not replay the user's client."""
    return Verdict(name, "invalid", why)


def incomplete(name: str, why: str) -> Verdict:
    """The verdict of a defense whose cells, or whose positive control's, did not all finish."""
    return Verdict(name, "incomplete", f"a planned cell failed: {why}")


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


def contradictions(made: Mapping[str, Any]) -> list[str]:
    """The defenses whose bound an attack exceeded, a line each."""
    return [
        f"{d['name']}: {d['bound']['corridor']['sentence']}"
        for c in made["checkpoints"]
        for d in c["defenses"]
        if d["bound"] and d["bound"]["corridor"] and d["bound"]["corridor"]["state"] == "contradiction"
    ]
