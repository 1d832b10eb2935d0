"""The ledger: what every number of an audit assumes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leakgauge.audit.judge.single import least_single_p
from leakgauge.audit.judge.values import Checkpoint, Line, Replay
from leakgauge.audit.plan import comparisons
from leakgauge.bounds.laws import times
from leakgauge.client import LEARNING_RATE
from leakgauge.defenses import parts_of
from leakgauge.doctor.diagnosis import Diagnosis
from leakgauge.intervals import mean_interval
from leakgauge.study.learned import any_learned
from leakgauge.study.study import Study

LABELS = {
    "known": "the adversary is told the labels",
    "inferred": "the adversary infers the labels from the update",
    "joint": "the adversary searches for the labels together with the record",
}


def replayed(diagnosis: Diagnosis | None) -> Replay:
    """Does our client replay the user's?"""
    if diagnosis is None:
        return Replay(status="not checked", sentence="The set-up was not checked against your client.")
    return Replay(status=diagnosis.status, sentence=diagnosis.sentence)


def adversaries(checkpoints: Sequence[Checkpoint]) -> list[tuple[str, str]]:
    """How adversaries were tuned, what they assumed and how they treated what is hidden, each sentence once."""
    sentences: dict[tuple[str, str], None] = {}
    for checkpoint in checkpoints:
        for defense in checkpoint.defenses:
            for adversary in defense.adversaries:
                told = (
                    *adversary.tuned,
                    *adversary.assumed,
                    *(str(t) for t in adversary.treatments if t.how != "granted"),
                )
                sentences |= dict.fromkeys((f"{adversary.name} against {defense.name}", each) for each in told)
    return list(sentences)


def _peers(study: Study) -> str:
    """Who could have stood in a record's place, and the p-value that a single leak can reach with so many."""
    groups, records, level = study.peer_groups.numpy(), len(study.records), study.verdict.significance
    least, tests = 2 * least_single_p(groups, records), comparisons(study)
    others = f"others{' of its class' if study.labels_granted else ''} ({len(groups) - records} in all)"
    sentence = (
        f"if nothing leaks, a reported record and {others} are exchangeable; a single leaking record reaches p = "
        f"{min(1.0, least):.2g} at best, before the correction for {tests} comparison{'s' * (tests > 1)}"
    )
    short = f"; with {tests} comparisons a single leak cannot reach {level:g}: audit with more data, or fewer defenses"
    return sentence + short * (least * tests > level)


def _fresh(study: Study) -> list[tuple[str, str]]:
    """Of every defense with noise: that each round draws its own, and in how many rounds a record takes part."""
    how = (
        f"every round draws new noise, and the same records take part in {times(study.bound_rounds)}; a client that "
        "repeats its noise reveals the exact difference of its gradients"
    )
    noisy = [name for name, one in study.defenses.items() if any(part.noise_law for part in parts_of(one.update))]
    return [(f"every number of {name}", how) for name in noisy]


def _drawn(study: Study, checkpoints: Sequence[Checkpoint]) -> list[tuple[str, str]]:
    """Of every adversary with a learned prior: how good its guesses are with noise in place of the update."""
    judge, lines = study.metrics.judge.meaning, dict[tuple[str, str], None]()
    learned = {name for name, settings in study.adversaries.items() if any(map(any_learned, settings))}
    for defense in (defense for checkpoint in checkpoints for defense in checkpoint.defenses):
        for one in defense.adversaries:
            real, noise = (one.scores.get(arm, {}).get(judge.name) for arm in ("real", "noise"))
            if one.name not in learned or not real or not noise:
                continue
            without, with_it = (judge.text(float(np.mean(scores))) for scores in (noise, real))
            sentence = (
                f"its prior is learned and draws plausible records from nothing: mean {judge.label} {without} with "
                f"noise in place of the update, {with_it} with the update"
            )
            if mean_interval(np.subtract(real, noise)).low <= 0:
                sentence += "; the gain is within chance, so its guesses may owe nothing to the update"
            lines[f"{one.name} against {defense.name}", sentence] = None
    return list(lines)


def ledger(study: Study, diagnosis: Diagnosis | None, checkpoints: Sequence[Checkpoint]) -> list[Line]:
    """Number → assumption, a line each."""
    spec = study.spec
    granted = ", ".join(spec.threat.grants)
    labels = "known" if study.labels_granted else spec.threat.labels
    rate = "" if study.threat.knows(LEARNING_RATE) else "; the learning rate is hidden"
    lines = [
        ("every score", f"{LABELS[labels]}{f'; it is also granted: {granted}' if granted else ''}{rate}"),
        ("every score", "the adversary knows model, weights, recipe and defense (Kerckhoffs)"),
        ("every score", "the server is honest but curious: it reads updates and changes nothing"),
        ("every score", replayed(diagnosis).sentence),
        (
            "every verdict",
            f"these adversaries with this much work: {', '.join(spec.adversaries)}; a stronger one may find more",
        ),
        *(("every verdict", note) for note in spec.notes()),
        (
            "p-values",
            "if nothing leaks, an update and that of another record with the same grants are exchangeable; corrected "
            f"for {comparisons(study)} comparisons (Holm)",
        ),
        ("the test of one record", _peers(study)),
        (
            "the null without an update",
            f"the mean of {len(study.reference)} reference records"
            + (", of the record's own class" if study.labels_granted else ""),
        ),
        (
            "every number",
            f"{len(study.records)} records of {spec.task.data}, disjoint from the {len(study.tuning)} records used for "
            f"tuning and the {len(study.reference)} reference records (manifest.json lists them by hash)",
        ),
    ]
    if len(set(spec.checkpoints.train_steps)) > 1 or spec.checkpoints.train_steps != [0]:
        how = "with each defense" if spec.checkpoints.defended else "without a defense"
        lines.append(("checkpoints", f"central SGD on {len(study.train)} train records, {how}"))
    lines += _fresh(study)
    if any(defense.input for defense in study.defenses.values()):
        drawn = (
            "the null's other record is encoded with the same random draws, the guess without an update with its own"
        )
        lines.append(("scores against encodings", drawn))
    lines.append(("accuracy", f"measured on {len(study.test)} unchanged test records"))
    encodings = {type(part) for defense in study.defenses.values() for part in defense.input if part.accuracy_caveat}
    for kind in sorted(encodings, key=lambda kind: kind.__name__):
        lines.append((f"accuracy under {kind.__name__}", kind.accuracy_caveat))
    if spec.checkpoints.seeds > 1:
        lines.append(("accuracy over seeds", "seeds change batches and draws of the defense, not the initial weights"))
    lines += [*adversaries(checkpoints), *_drawn(study, checkpoints)]
    return [Line(number=number, assumes=assumes) for number, assumes in lines]
