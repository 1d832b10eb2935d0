"""Advice: the findings of an audit as settings for the user's own case, each with the number behind it.

After the recommendations of Huang et al., Evaluating Gradient Inversion Attacks and Defenses, 2021, section 6; nothing
is said here that this audit did not measure or prove.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leakgauge.report import formats
from leakgauge.report.schema import Result
from leakgauge.report.story import Subject, subjects

SAFE = ("no evidence",)
LEAKS = ("exact", "recognisable")


def advice(result: Result) -> list[str]:
    """Sentences, the most urgent first."""
    found = subjects(result)
    return [*_set_up(result), *_bare(result, found), *_defended(result, found), *_models(found), *_proofs(found)]


def _set_up(result: Result) -> Iterator[str]:
    if result.replay.status == "not checked":
        yield (
            "Check the set-up first: add [task.replay] with one update of your real client and run leakgauge doctor. "
            "An audit of another client says nothing about yours"
        )
    for finding in result.preflight:
        if finding.severity == "exact":
            yield f"Change the architecture or the batch: {finding.sentence.rstrip('.')}. No attack is needed for that"


def _bare(result: Result, found: list[Subject]) -> Iterator[str]:
    task = result.spec.get("task")
    recipe: Any = task.get("recipe") if isinstance(task, dict) else None
    batch = recipe.get("batch") if isinstance(recipe, dict) else None
    for subject in found:
        if subject.bare and subject.word in LEAKS:
            many = formats.above(subject.shown, result.thresholds.recognisable)
            yield f"Do not send undefended updates: {many} records were recognised"
            if batch == 1:
                yield (
                    "Let clients average over more examples before they send: these updates come from one record each, "
                    "the easiest case for an adversary. Audit the larger batch before you rely on it"
                )


def _defended(result: Result, found: list[Subject]) -> Iterator[str]:
    judged = [s for s in found if not s.bare]
    for subject in judged:
        if subject.word in LEAKS:
            many = formats.above(subject.shown, result.thresholds.recognisable)
            yield f"Do not rely on {subject.name} ({subject.expression}): {many} records were recognised"
    silent = [s for s in judged if s.word in SAFE]
    if silent:
        prices = [_price(s) for s in silent]
        named = ", ".join(f"{s.name} ({s.expression}{p})" for s, p in zip(silent, prices, strict=True))
        yield f"Of the settings audited, these attacks found nothing through {named}; that is no proof of safety"
    elif judged and all(s.word in (*LEAKS, "detectable") for s in judged):
        yield "None of the settings audited hid the records: add noise after clipping, or raise it, and audit again"


def _price(subject: Subject) -> str:
    """What it costs in accuracy, where the model was trained."""
    known = subject.at.step > 0 and subject.shown.accuracy is not None
    return f", accuracy {formats.share(subject.shown.accuracy)}" if known else ""


def _models(found: list[Subject]) -> Iterator[str]:
    """Where only an adversary that models the defense found the leak."""
    for subject in found:
        means = {a.name: a.mean for a in subject.shown.adversaries if a.mean is not None}
        if subject.bare or len(means) < 2 or subject.word not in LEAKS:
            continue
        best, least = max(means, key=lambda n: means[n]), min(means, key=lambda n: means[n])
        if means[best] - means[least] > 0.1:
            yield (
                f"Do not judge {subject.name} by {least} alone: it reaches {means[least]:.2f} on average, {best} "
                f"{means[best]:.2f}"
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
