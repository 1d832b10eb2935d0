"""Advice: the findings of an audit as settings for the user's own case, each with the number behind it.

After the recommendations of Huang et al., Evaluating Gradient Inversion Attacks and Defenses, 2021, section 6; nothing
is said here that this audit did not measure or prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Adversary, Grant
from leakgauge.audit.judge.words import LADDER, LEAKS, severity
from leakgauge.intervals import mean_interval
from leakgauge.report import formats
from leakgauge.report.price import Bill, one_record
from leakgauge.report.story import Subject, subjects

SAFE = LADDER[0]
DEAR = 2.0
"""Points of accuracy from which a defense that leaks is called a waste."""
SHOWN = 0.9
"""The share of labels from which on an update shows them by itself."""
MOST = 7
"""Lines of advice: more are not read."""


def advice(result: Result, bills: Sequence[Bill] = ()) -> list[str]:
    """At most :data:`MOST` sentences, the most urgent first; ``bills`` are the prices of the same run."""
    every = subjects(result)
    sentences = (
        *_set_up(result),
        *_structure(result),
        *_bare(result, every),
        *_leaky(result, every),
        *_silent(every),
        *_combined(result, every),
        *_proofs(every),
        *_grants(result, every),
        *_statistics(result),
        *_secret(every, bills),
        *_judged(result, every),
    )
    return list(sentences[:MOST])


def _set_up(result: Result) -> Iterator[str]:
    if result.replay.status == "not checked":
        yield (
            "Check the set-up first: add [task.replay] with one update of your real client and run leakgauge doctor. "
            "An audit of another client says nothing about yours"
        )


def _structure(result: Result) -> Iterator[str]:
    exact = [f.sentence.rstrip(".") for f in result.preflight if f.severity == "exact"]
    if exact:
        yield f"Change the architecture or the batch: {'; '.join(exact)}. No attack is needed for that"


def _statistics(result: Result) -> Iterator[str]:
    for finding in result.preflight:
        if finding.name == "batch-norm statistics":
            yield f"Use batch norm, but keep its statistics on the client: {finding.sentence.rstrip('.')}"


def _bare(result: Result, every: list[Subject]) -> Iterator[str]:
    task = result.spec.get("task")
    recipe: Any = task.get("recipe") if isinstance(task, dict) else None
    batch = recipe.get("batch") if isinstance(recipe, dict) else None
    for subject in every:
        if subject.bare and subject.leaks:
            many = formats.above(subject.defense, result.thresholds.recognisable)
            sentence = f"Do not send undefended updates: {many} records were recognised"
            if isinstance(batch, int):
                each = "one record each, the easiest case for an adversary" if batch == 1 else f"{batch} records each"
                sentence += (
                    f" in updates of {each}. Let clients average over more, and audit that before you rely on it"
                )
            yield sentence


def _leaky(result: Result, every: list[Subject]) -> Iterator[str]:
    """What let records be recognised, the worst first, with what it costs all the same."""
    leaky = sorted((s for s in every if not s.bare and s.leaks), key=lambda s: severity(s.word), reverse=True)
    if leaky:
        named = ", ".join(f"{s.name} ({_many(result, s)} recognised{_waste(s)})" for s in leaky)
        yield f"Do not rely on {named}"


def _silent(every: list[Subject]) -> Iterator[str]:
    judged = [s for s in every if not s.bare]
    silent = [s for s in judged if s.word == SAFE]
    if silent:
        named = ", ".join(f"{s.name} ({s.expression}{_price(s)})" for s in silent)
        yield f"These attacks found nothing through {named}; that is no proof of safety"
    elif judged and all(s.word in (*LEAKS, "detectable") for s in judged):
        yield "None of the settings audited hid the records: add noise after clipping, or raise it, and audit again"


def _many(result: Result, subject: Subject) -> str:
    """``6 of 10 records``; of encodings where no record itself was recognised."""
    encoding = subject.defense.encoding
    if encoding is not None and not subject.defense.attack.recognised:
        return f"{formats.encoding(encoding)} {encoding.called}s"
    return f"{formats.above(subject.defense, result.thresholds.recognisable)} records"


def _price(subject: Subject) -> str:
    """What it costs in accuracy, where the model was trained with it."""
    at, defense = subject.history[-1]
    lost = _lost(subject)
    if lost is None:
        known = at.step > 0 and defense.accuracy is not None
        return f", accuracy {formats.accuracy(defense)}" if known else ""
    less = "less" if lost >= 0 else "more"
    return f", accuracy {formats.accuracy(defense)}, {abs(lost):.0f} points {less} than without a defense"


def _lost(subject: Subject) -> float | None:
    """Accuracy lost at the last checkpoint, in points; None where the model was not trained, or not with it."""
    at, defense = subject.history[-1]
    plain, own = (x.accuracies or ((x.accuracy,) if x.accuracy is not None else ()) for x in (at, defense))
    if at.step == 0 or not plain or not own or plain == own:
        return None
    return 100 * (fmean(plain) - fmean(own))


def _chance(subject: Subject) -> bool:
    """Whether seeds with the defense reach what seeds without it reach."""
    at, defense = subject.history[-1]
    return bool(at.accuracies and defense.accuracies) and max(defense.accuracies) >= min(at.accuracies)


def _mean(subject: Subject) -> float:
    """The mean score at the checkpoint that decides the word."""
    return fmean(r.score for r in subject.defense.records)


def _wasted(subject: Subject) -> bool:
    """Accuracy that was paid for nothing."""
    lost = _lost(subject)
    return subject.leaks and lost is not None and lost >= DEAR and not _chance(subject)


def _waste(subject: Subject) -> str:
    if not _wasted(subject):
        return ""
    reached = formats.accuracy(subject.history[-1][1])
    return f", and it costs {_lost(subject):.0f} points of accuracy, which leaves {reached}"


def _combined(result: Result, every: list[Subject]) -> Iterator[str]:
    """The best combination beside its parts; or, where none was audited, one to try: records encoded, then updates."""
    whole = {_parts(s): s for s in every if s.defense.records and not s.bare}
    compared = []
    for subject in whole.values():
        parts = [whole[(part,)] for part in _parts(subject) if (part,) in whole and len(_parts(subject)) > 1]
        if parts:
            compared.append((subject, parts))
    if compared:
        subject, parts = min(compared, key=lambda pair: _mean(pair[0]))
        told = "; ".join(f"{s.name}: {_leak(result, s)}" for s in (subject, *parts))
        yield f"{'Combining hides more' if _hides_more(subject, parts) else 'Combining hides no more here'}: {told}"
        return
    judged = [s for s in whole.values() if s.word in LADDER]
    encoding = [s for s in judged if s.word != SAFE and _stages(s) == ["input"]]
    changing = [s for s in judged if set(_stages(s)) == {"update"}]
    pairs = [(a, b) for a in encoding for b in changing if not (_wasted(a) and _wasted(b))]
    if pairs:
        first, second = min(pairs, key=lambda pair: (*_rejected(pair[1]), *_rejected(pair[0])))
        yield (
            f"Audit {first.name} and {second.name} together ({first.expression} | {second.expression}): one encodes "
            f"records, the other changes updates. Each alone: {first.name}: {_leak(result, first)}; {second.name}: "
            f"{_leak(result, second)}"
        )


def _parts(subject: Subject) -> tuple[str, ...]:
    """The expressions of a defense's parts; an older result does not say them, and is one part."""
    return tuple(part.expression for part in subject.defense.parts) or (subject.expression,)


def _stages(subject: Subject) -> list[str]:
    return [part.stage for part in subject.defense.parts]


def _rejected(subject: Subject) -> tuple[bool, int, float]:
    """How much speaks against a defense: a waste, a leak, its cost."""
    return _wasted(subject), severity(subject.word), _lost(subject) or 0.0


def _hides_more(subject: Subject, parts: list[Subject]) -> bool:
    """Less of the records than through each part alone, and less of the encodings where records are encoded; both
    beyond the interval of the mean difference."""
    own, alone = subject.defense.encoding, [s for s in parts if s.defense.encoding is not None]
    encodings = own is None or all(exceeds(_encodings(part), _encodings(subject)) for part in alone)
    return encodings and all(exceeds(_scores(part), _scores(subject)) for part in parts)


def _scores(subject: Subject) -> dict[int, float]:
    return {r.record: r.score for r in subject.defense.records}


def _encodings(subject: Subject) -> dict[int, float]:
    return {r.record: r.encoding.score for r in subject.defense.records if r.encoding is not None}


def exceeds(scores: Mapping[int, float], others: Mapping[int, float]) -> bool:
    """Whether scores are larger on average than others of the same records, beyond the interval of the difference."""
    gains = [scores[record] - others[record] for record in scores if record in others]
    return len(gains) > 1 and mean_interval(gains).low > 0


def _leak(result: Result, subject: Subject) -> str:
    """``mean ssim 0.31, worst record 0.52, accuracy 71 %``."""
    mean, worst = _mean(subject), max(r.score for r in subject.defense.records)
    text = f"mean {result.judge.label} {result.judge.text(mean)}, worst record {result.judge.text(worst)}"
    encoding = subject.defense.encoding
    if encoding is not None:
        text += f", mean of {encoding.called}s {result.judge.text(encoding.mean)}"
    return text + _price(subject)


def _hidden(result: Result, subject: Subject, grant: Grant) -> bool:
    """Whether a grant says what the update does not show by itself: only that can be kept from the server.

    A learning rate only scales what one step sends, so what an adversary loses without it is the adversary's fault.
    """
    if grant.grant == "labels":
        structural = any(finding.name == "labels" for finding in result.preflight)
        inferred = grant.labels is not None and grant.labels >= SHOWN
        return not inferred and not (structural and subject.bare)
    return grant.grant != "learning_rate"


def _grants(result: Result, every: list[Subject]) -> Iterator[str]:
    """What the adversary loses without a grant, beyond chance: worth keeping from it."""
    best: dict[str, tuple[Grant, Subject]] = {}
    for subject in every:
        for grant in subject.defense.ablation:
            known = best.get(grant.grant)
            clear = grant.low is not None and grant.low > 0 and _hidden(result, subject, grant)
            if clear and (known is None or grant.mean > known[0].mean):
                best[grant.grant] = (grant, subject)
    if best:
        falls = ", ".join(
            f"without {name.replace('_', ' ')} by {formats.gain(grant, result.judge).replace('+', '')} under {s.name}"
            for name, (grant, s) in best.items()
        )
        names = " and ".join(name.replace("_", " ") for name in best)
        yield f"Keep {names} from the server if you can: {result.judge.label} falls {falls}"


def _secret(every: list[Subject], bills: Sequence[Bill]) -> Iterator[str]:
    """InstaHide makes the adversary pay for the whole data set, as long as it is not told which records were mixed."""
    plain = next((b for b in bills for s in every if s.bare and b.name == s.name), None)
    for bill in {b.name: b for b in bills if b.secret}.values():
        beside = f", against {one_record(plain)} without a defense" if plain and plain.recovered else ""
        yield (
            f"Keep secret which records {bill.name} mixes: its decoder needs these indices, and without them one "
            f"record costs {one_record(bill)}{beside}; the rest is processor time of this machine"
        )


def _judged(result: Result, every: list[Subject]) -> Iterator[str]:
    """Where an average hides a record that was recognised, or an adversary that does not model the defense its leak."""
    leaky = [s for s in every if not s.bare and s.leaks and s.defense.records]
    examples = [*_worst(result, leaky), *_models(result, leaky)]
    if examples:
        yield f"Judge a defense by its worst record and its strongest adversary: {'; '.join(examples)}"


def _worst(result: Result, leaky: list[Subject]) -> Iterator[str]:
    threshold = result.thresholds.recognisable
    tops = {s.name: (max(r.score for r in s.defense.records), _mean(s)) for s in leaky}
    hidden = {n: (top, mean) for n, (top, mean) in tops.items() if threshold is not None and mean < threshold <= top}
    if hidden:
        name, (top, mean) = max(hidden.items(), key=lambda item: item[1][0] - item[1][1])
        most, usual, least = map(result.judge.text, (top, mean, threshold))
        yield f"{result.judge.label} {most} against {usual} on average under {name}, recognisable from {least} on"


def _models(result: Result, leaky: list[Subject]) -> Iterator[str]:
    """An adversary whose mean is lower by a fifth of the threshold, and beyond chance, would have hidden the leak."""
    gaps, clear = [], 0.2 * (result.thresholds.recognisable or result.judge.threshold)
    for subject in leaky:
        adversaries = {a.name: a for a in subject.defense.adversaries}
        means = sorted((a.mean, a.name) for a in adversaries.values() if a.mean is not None)
        if len(means) > 1 and means[-1][0] - means[0][0] > clear:
            worst, best = (_by_record(adversaries[name], result.judge.name) for _, name in (means[0], means[-1]))
            if exceeds(best, worst):
                gaps.append((means[-1][0] - means[0][0], subject.name, means[0], means[-1]))
    if gaps:
        _, name, (low, weak), (high, strong) = max(gaps)
        scores = [result.judge.text(v) for v in (low, high)]
        yield f"{weak} reaches {scores[0]} on average under {name}, {strong} {scores[1]}"


def _by_record(adversary: Adversary, metric: str) -> dict[int, float]:
    return dict(enumerate(adversary.scores.get("real", {}).get(metric, ())))


def _proofs(every: list[Subject]) -> Iterator[str]:
    """The noise that proves a ceiling, for the defense that is nearest to one."""
    short = [
        (bound.ceiling, subject.name, bound, bound.enough)
        for subject in every
        if (bound := subject.defense.bound) and bound.enough and bound.ceiling and bound.ceiling > bound.enough.ceiling
    ]
    if short:
        _, name, bound, enough = min(short, key=lambda each: each[0])
        yield (
            f"For a proof, use {enough.expression}: with it nobody recognises a record with a probability above "
            f"{100 * enough.ceiling:.0f} %; for {name} as it is, the ceiling is {formats.bound(bound)}"
        )
