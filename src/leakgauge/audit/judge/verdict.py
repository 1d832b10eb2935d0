"""Verdicts: what can be said of each defense, and why, in a sentence (words: :mod:`leakgauge.audit.judge.words`).

"Above the null" compares with the update of another record: the one null that is exchangeable with the truth when
nothing leaks, so that the test over all records holds its level exactly; the test of one record by itself exchanges
records instead (:mod:`leakgauge.audit.judge.single`). Noise in place of the update and a guess from the prior alone are
easier or harder to beat for reasons that have nothing to do with leakage; they are reported beside it, and a record
counts as recognised only if it beats all three.

Under an input stage the client trains on encodings of its records, and scores against those are a second finding. An
encoding that comes back from the update is a leak whether or not it could be undone: at least ``detectable``, and
``recognisable`` where a recognised encoding shows one record to the eye (a transformed image).

The positive control asks for more than a p-value: an adversary that gains a hundredth without a defense beats its null,
and would miss nearly every leak behind one. Its silence counts only if it recognises a record without the defense, and
models the defense: an attack that matches updates as if nothing had been done to them finds nothing behind a mere sign.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from leakgauge.audit.judge.arms import NULLS, Arms, Encodings, Nearly
from leakgauge.audit.judge.statistics import holm, rate_at
from leakgauge.audit.judge.values import Excess, Rate
from leakgauge.audit.judge.words import Word, at_least
from leakgauge.meaning import Meaning

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Rules:
    """How verdicts are reached: ``threshold`` of the metric that judges, ``exact`` of the one that tells exact ones."""

    judge: Meaning
    threshold: float
    exactness: Meaning
    exact: float
    significance: float = 0.05

    @property
    def metric(self) -> str:
        """The name of the metric that judges."""
        return self.judge.name

    @property
    def recognisable(self) -> str:
        """``ssim 0.5``."""
        return self.judge.at(self.threshold)


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
    nearly: Nearly
    labels: int | None = None
    """How many labels the adversary that has the most of them right has right."""

    @property
    def p(self) -> float:
        return min(1.0, 2 * min(self.gains["another"].p, self.single))


def find(arms: Arms, rules: Rules) -> Finding:
    """Compare the update with the nulls."""
    real = arms.best("real", rules.metric)
    gains = {null: arms.excess(rules.metric, null) for null in NULLS}
    recognised = int(arms.recognised(rules.metric, rules.threshold).sum())
    nearly, labels = arms.nearly(rules.metric, rules.threshold), max(arms.labels.values(), default=None)
    return Finding(gains, arms.single(), recognised, len(real), nearly, labels)


@dataclass(frozen=True)
class Encoded:
    """What the scores against encodings say. The null's client draws its encodings alike, record for record."""

    called: str
    lone: bool
    gain: Excess
    recognised: int
    records: int
    mean: float
    best: float
    p: float = 1.0

    def why(self, rules: Rules) -> str:
        """What was found, and what it means for the records."""
        if not self.recognised:
            return f"scored against {self.called}s the null is beaten ({_p(self.p)}), though none is recognised"
        means = (
            "whoever sees one sees the record"
            if self.lone
            else "the update gives it away, and only the encoding hides the record"
        )
        return f"{_reach(self.recognised, self.records, f'{self.called}s', rules)} ({_p(self.p)}): {means}"


def look(encodings: Encodings, rules: Rules) -> Encoded:
    """Compare the update with the nulls, scored against encodings."""
    arms = encodings.arms
    real = arms.best("real", rules.metric)
    recognised = int(arms.recognised(rules.metric, rules.threshold).sum())
    gain, mean, best = arms.excess(rules.metric), float(real.mean()), float(real.max())
    return Encoded(encodings.called, encodings.lone, gain, recognised, len(real), mean, best)


@dataclass(frozen=True)
class Control:
    """The positive control: what the adversaries find in the undefended update of the same records."""

    together: Finding
    each: Mapping[str, Finding]
    works: tuple[str, ...]
    """The adversaries that beat their null and recognise a record, each by itself."""

    def traces(self, significance: float) -> bool:
        """Whether the adversaries find anything without the defense; if not, a trace behind it is chance."""
        return bool(self.works) or self.together.p <= significance


def control(arms: Arms, rules: Rules) -> Control:
    """Every adversary by itself, and all together, without a defense."""
    each = {name: find(arms.only(name), rules) for name in arms.adversaries}
    p = holm({name: finding.p for name, finding in each.items()})
    works = tuple(name for name, finding in each.items() if p[name] <= rules.significance and finding.recognised)
    return Control(find(arms, rules), each, works)


@dataclass(frozen=True)
class Verdict:
    """What an audit says of one defense."""

    word: Word
    why: str
    finding: Finding | None = None
    p: float | None = None
    rate: Rate | None = None
    control: Control | None = field(default=None, repr=False)
    encoded: Encoded | None = None


def verdicts(
    arms: Mapping[Key, Arms],
    controls: Mapping[Key, Arms],
    rules: Rules,
    encodings: Mapping[Key, Encodings] | None = None,
) -> dict[Key, Verdict]:
    """One verdict per key of ``arms``; p-values are corrected for their number and that of ``encodings``."""
    findings = {key: find(a, rules) for key, a in arms.items()}
    early = {key: look(e, rules) for key, e in (encodings or {}).items()}
    p = {("record", key): finding.p for key, finding in findings.items()}
    corrected = holm({**p, **{("encoding", key): encoded.gain.p for key, encoded in early.items()}})
    positive = {id(a): control(a, rules) for a in {id(a): a for a in controls.values()}.values()}
    words = {}
    for key, own in arms.items():
        words[key] = judge(own, findings[key], corrected["record", key], positive[id(controls[key])], rules)
        if key in early:
            words[key] = _at_least(words[key], replace(early[key], p=corrected["encoding", key]), rules)
    return words


def judge(arms: Arms, finding: Finding, p: float, positive: Control, rules: Rules) -> Verdict:
    """The word for one defense, and why, from its finding, its corrected p-value and the positive control."""
    word, why = _exact(arms, rules) or _leak(finding, p, positive, rules) or _silent(arms, p, positive, rules)
    pool = arms.unrelated(rules.metric)[arms.alike]
    rate = rate_at(arms.best("real", rules.metric), pool) if len(pool) else None
    return Verdict(word, why, finding, p, rate, positive)


def _exact(arms: Arms, rules: Rules) -> tuple[Word, str] | None:
    """Recovered to numerical precision, where no null comes as near."""
    name, meaning = rules.exactness.name, rules.exactness
    scores, floor = arms.best("real", name), arms.null(name)
    exact = scores[(scores >= rules.exact) & (floor < rules.exact)]
    if not len(exact):
        return None
    was = "was" if len(exact) == 1 else "were"
    best = f"{meaning.text(float(exact.max()))}{'' if meaning.unit else f' {meaning.label}'}"
    return "exact", f"{len(exact)} of {len(scores)} records {was} recovered to numerical precision, the best at {best}"


def _leak(finding: Finding, p: float, positive: Control, rules: Rules) -> tuple[Word, str] | None:
    """Above the null."""
    if p > rules.significance:
        return None
    if finding.recognised:
        return "recognisable", f"{_reach(finding.recognised, finding.records, 'records', rules)} ({_p(p)})"
    if positive.traces(rules.significance):
        why = f"the null is beaten ({_p(p)}), but no record reaches {rules.recognisable} and beats every null"
        return "detectable", f"{why}: {finding.nearly.text(rules.judge)}"
    return None


def _silent(arms: Arms, p: float, positive: Control, rules: Rules) -> tuple[Word, str]:
    """No leak was found: is that worth anything?

    It is where an adversary that models the defense recognises a record without it.
    """
    works, idle = positive.works, [name for name in positive.each if name not in positive.works]
    if not works:
        plain = positive.together
        why = (
            f"without a defense the adversaries recognise none of {plain.records} records either "
            f"({plain.nearly.text(rules.judge)}, {_p(plain.p)})"
        )
        return "too weak", f"{why}: {_remedy(plain)}"
    if all(name in arms.unmodelled for name in works):
        reasons = "; ".join(dict.fromkeys(arms.unmodelled[name] for name in works))
        return (
            "too weak",
            f"not modelled: {reasons}. Not above the null ({_p(p)}), but no adversary that models this defense works; "
            "audit with adaptive(), or give the part an `apply` or a density",
        )
    besides = f"; {', '.join(idle)} did not, and adds nothing" if idle else ""
    return (
        "no evidence",
        f"not above the null ({_p(p)}), although without a defense {' and '.join(works)} "
        f"{'recognise' if len(works) > 1 else 'recognises'} {positive.together.recognised} of "
        f"{positive.together.records} records{besides}",
    )


def _remedy(plain: Finding) -> str:
    """What to do about adversaries that recognise nothing without a defense."""
    if plain.labels is not None and 2 * plain.labels < plain.records:
        return (
            f"their labels are wrong ({plain.labels} of {plain.records} are right), and more steps will not help; "
            'let them search for the labels (labels = "joint"), or grant them (labels = "known")'
        )
    if plain.nearly.null == "prior":
        return "give them more steps or restarts, a stronger prior, or an easier set-up"
    return "give them more steps or restarts, or an easier set-up"


def _at_least(verdict: Verdict, encoded: Encoded, rules: Rules) -> Verdict:
    """An encoding that was found counts, also where the adversaries at hand could not undo it."""
    word: Word = "recognisable" if encoded.recognised and encoded.lone else "detectable"
    traces = verdict.control is not None and verdict.control.traces(rules.significance)
    leaks = encoded.p <= rules.significance and (encoded.recognised or traces)
    if not leaks or at_least(verdict.word, word):
        more = leaks and verdict.finding is not None and encoded.recognised > verdict.finding.recognised
        also = f"; of the {encoded.called}s {encoded.recognised} of {encoded.records}" if more else ""
        return replace(verdict, why=verdict.why + also, encoded=encoded)
    return replace(
        verdict, word=word, why=f"{encoded.why(rules)}; of the records themselves: {verdict.why}", encoded=encoded
    )


def _reach(count: int, total: int, things: str, rules: Rules) -> str:
    """``3 of 8 records reach ssim 0.5 and beat every null``."""
    reach, beat = ("reaches", "beats") if count == 1 else ("reach", "beat")
    return f"{count} of {total} {things} {reach} {rules.recognisable} and {beat} every null"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def invalid(why: str) -> Verdict:
    """The verdict of a defense in a set-up that does not replay the user's client."""
    return Verdict("invalid", why)


def incomplete(why: str) -> Verdict:
    """The verdict of a defense whose cells, or whose positive control's, did not all finish."""
    return Verdict("incomplete", f"a planned cell failed: {why}")
