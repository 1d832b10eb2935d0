"""Advice: the findings of an audit as settings for the user's own case, each with the number behind it.

After the recommendations of Huang et al., Evaluating Gradient Inversion Attacks and Defenses, 2021, section 6; nothing
is said here that this audit did not measure or prove.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from leakgauge.report import formats
from leakgauge.report.price import Bill, one_record
from leakgauge.report.schema import Grant, Result
from leakgauge.report.story import Subject, subjects

SAFE = ("no evidence",)
LEAKS = ("exact", "recognisable")
DEAR = 2.0
"""Points of accuracy from which a defense that leaks is called a waste."""
ENCODES = re.compile(r"(mixup|instahide|ats)\(")


def advice(result: Result, bills: Sequence[Bill] = ()) -> list[str]:
    """Sentences, the most urgent first; ``bills`` are the prices of the same run."""
    found = subjects(result)
    return [
        *_set_up(result),
        *_bare(result, found),
        *_defended(result, found),
        *_worst(result, found),
        *_wasted(result, found),
        *_combined(result, found),
        *_grants(result, found),
        *_models(result, found),
        *_mixed(found, bills),
        *_proofs(found),
    ]


def _set_up(result: Result) -> Iterator[str]:
    if result.replay.status == "not checked":
        yield (
            "Check the set-up first: add [task.replay] with one update of your real client and run leakgauge doctor. "
            "An audit of another client says nothing about yours"
        )
    for finding in result.preflight:
        if finding.severity == "exact":
            yield f"Change the architecture or the batch: {finding.sentence.rstrip('.')}. No attack is needed for that"
        if finding.name == "batch-norm statistics":
            yield f"Use batch norm, but keep its statistics on the client: {finding.sentence.rstrip('.')}"


def _bare(result: Result, found: list[Subject]) -> Iterator[str]:
    task = result.spec.get("task")
    recipe: Any = task.get("recipe") if isinstance(task, dict) else None
    batch = recipe.get("batch") if isinstance(recipe, dict) else None
    for subject in found:
        if subject.bare and subject.word in LEAKS:
            many = formats.above(subject.shown, result.thresholds.recognisable)
            yield f"Do not send undefended updates: {many} records were recognised"
            if isinstance(batch, int):
                each = "one record each, the easiest case for an adversary" if batch == 1 else f"{batch} records each"
                yield (
                    f"Let clients average over more examples before they send: {many} records were recognised in "
                    f"updates of {each}. Audit the larger batch before you rely on it"
                )


def _defended(result: Result, found: list[Subject]) -> Iterator[str]:
    judged = [s for s in found if not s.bare]
    for subject in judged:
        if subject.word in LEAKS:
            yield f"Do not rely on {subject.name} ({subject.expression}): {_many(result, subject)} were recognised"
    silent = [s for s in judged if s.word in SAFE]
    if silent:
        prices = [_price(s) for s in silent]
        named = ", ".join(f"{s.name} ({s.expression}{p})" for s, p in zip(silent, prices, strict=True))
        yield f"Of the settings audited, these attacks found nothing through {named}; that is no proof of safety"
    elif judged and all(s.word in (*LEAKS, "detectable") for s in judged):
        yield "None of the settings audited hid the records: add noise after clipping, or raise it, and audit again"


def _many(result: Result, subject: Subject) -> str:
    """``6 of 10 records``; of encodings where no record itself was recognised."""
    encoding = subject.shown.encoding
    if encoding is not None and not subject.shown.attack.recognised:
        return f"{formats.encoding(encoding)} {encoding.called}s"
    return f"{formats.above(subject.shown, result.thresholds.recognisable)} records"


def _price(subject: Subject) -> str:
    """What it costs in accuracy, where the model was trained with it."""
    at, shown = subject.history[-1]
    lost = _lost(subject)
    if lost is None:
        known = at.step > 0 and shown.accuracy is not None
        return f", accuracy {formats.accuracy(shown)}" if known else ""
    less = "less" if lost >= 0 else "more"
    return f", accuracy {formats.accuracy(shown)}, {abs(lost):.0f} points {less} than without a defense"


def _lost(subject: Subject) -> float | None:
    """Accuracy lost at the last checkpoint, in points; None where the model was not trained, or not with it."""
    at, shown = subject.history[-1]
    plain, own = (x.accuracies or ((x.accuracy,) if x.accuracy is not None else ()) for x in (at, shown))
    if at.step == 0 or not plain or not own or plain == own:
        return None
    return 100 * (fmean(plain) - fmean(own))


def _chance(subject: Subject) -> bool:
    """Whether seeds with the defense reach what seeds without it reach."""
    at, shown = subject.history[-1]
    return bool(at.accuracies and shown.accuracies) and max(shown.accuracies) >= min(at.accuracies)


def _mean(subject: Subject) -> float:
    """The mean score at the checkpoint that decides the word."""
    return fmean(r.score for r in subject.shown.records)


def _worst(result: Result, found: list[Subject]) -> Iterator[str]:
    """Where an average hides a record that was recognised."""
    threshold = result.thresholds.recognisable
    for subject in found:
        if subject.bare or threshold is None or not subject.shown.records or subject.word not in LEAKS:
            continue
        worst = max(r.score for r in subject.shown.records)
        if _mean(subject) < threshold <= worst:
            mean, most = (formats.score(v, result.metric) for v in (_mean(subject), worst))
            yield (
                f"Judge {subject.name} by its worst record, not by the average: {result.metric} {most} against {mean}; "
                f"a record counts as recognisable from {formats.score(threshold, result.metric)}"
            )


def _wasted(result: Result, found: list[Subject]) -> Iterator[str]:
    """Accuracy that was paid for nothing."""
    for subject in found:
        lost = _lost(subject)
        dear = lost is not None and lost >= DEAR and not _chance(subject)
        if not subject.bare and subject.word in LEAKS and dear:
            reached = formats.accuracy(subject.history[-1][1])
            yield (
                f"Do not pay for {subject.name}: it costs {lost:.0f} points of accuracy, {reached} are left, and "
                f"{_many(result, subject)} were recognised all the same"
            )


def _combined(result: Result, found: list[Subject]) -> Iterator[str]:
    """Two defenses together, beside each alone; or, where each leaks alone, the advice to try."""
    alone = {s.expression: s for s in found if s.shown.records and not s.bare and "|" not in s.expression}
    both = [s for s in found if s.shown.records and "|" in s.expression]
    compared = False
    for subject in both:
        parts = [alone[text] for text in map(str.strip, subject.expression.split("|")) if text in alone]
        if not parts:
            continue
        compared = True
        told = "; ".join(f"{s.name}: {_leak(result, s)}" for s in (subject, *parts))
        more = _mean(subject) < min(map(_mean, parts))
        yield f"{'Combining hides more' if more else 'Combining hides no more here'}: {told}"
    leaky = [s for s in alone.values() if s.word in LEAKS]
    stages = {bool(ENCODES.match(s.expression)): s for s in leaky}
    if not compared and len(stages) == 2:
        first, second = stages[True], stages[False]
        yield (
            f"Audit {first.name} and {second.name} together ({first.expression} | {second.expression}): one encodes "
            f"records, the other changes updates. Each alone: {first.name}: {_leak(result, first)}; {second.name}: "
            f"{_leak(result, second)}"
        )


def _leak(result: Result, subject: Subject) -> str:
    """``mean ssim 0.31, worst record 0.52, accuracy 71 %``."""
    mean, worst = _mean(subject), max(r.score for r in subject.shown.records)
    said = (
        f"mean {result.metric} {formats.score(mean, result.metric)}, worst record {formats.score(worst, result.metric)}"
    )
    return said + _price(subject)


def _grants(result: Result, found: list[Subject]) -> Iterator[str]:
    """What the adversary loses without a grant: worth keeping from it."""
    best: dict[str, tuple[Grant, Subject]] = {}
    for subject in found:
        for grant in subject.shown.ablation:
            known = best.get(grant.grant)
            if grant.low > 0 and (known is None or grant.mean > known[0].mean):
                best[grant.grant] = (grant, subject)
    for name, (grant, subject) in best.items():
        yield (
            f"Keep {name.replace('_', ' ')} from the server if you can: without this grant {result.metric} falls by "
            f"{formats.gain(grant, result.metric).replace('+', '')} under {subject.name}"
        )


def _mixed(found: list[Subject], bills: Sequence[Bill]) -> Iterator[str]:
    """InstaHide makes the adversary pay for the whole data set, as long as it is not told which records were mixed."""
    plain = next((b for b in bills for s in found if s.bare and b.name == s.name), None)
    for bill in {b.name: b for b in bills if b.secret}.values():
        beside = f", against {one_record(plain)} without a defense" if plain and plain.recovered else ""
        yield (
            f"Keep secret which records {bill.name} mixes, its decoder needs these indices: without them one record "
            f"costs {one_record(bill)}{beside}; the rest is processor time of this machine"
        )


def _models(result: Result, found: list[Subject]) -> Iterator[str]:
    """Where only an adversary that models the defense found the leak."""
    for subject in found:
        means = {a.name: a.mean for a in subject.shown.adversaries if a.mean is not None}
        if subject.bare or len(means) < 2 or subject.word not in LEAKS:
            continue
        best, least = max(means, key=lambda n: means[n]), min(means, key=lambda n: means[n])
        if means[best] - means[least] > 0.1:
            yield (
                f"Do not judge {subject.name} by {least} alone: it reaches "
                f"{formats.score(means[least], result.metric)} on average, {best} "
                f"{formats.score(means[best], result.metric)}"
            )


def _proofs(found: list[Subject]) -> Iterator[str]:
    for subject in found:
        bound = subject.shown.bound
        if bound is None or bound.enough is None:
            continue
        if bound.ceiling is not None and bound.ceiling > bound.enough.ceiling:
            yield (
                f"For a proof instead of a search: with {bound.enough.expression}, nobody recognises a record with a "
                f"probability above {100 * bound.enough.ceiling:.0f} %; for {subject.name} as it is the ceiling is "
                f"{formats.bound(bound)}"
            )
