"""The ledger: what every number of an audit assumes."""

from __future__ import annotations

from typing import Any

from leakgauge.audit.plan import comparisons
from leakgauge.audit.prepare import Prepared
from leakgauge.defenses import InstaHide, protection
from leakgauge.doctor.diagnosis import Diagnosis
from leakgauge.study.spec import Spec

LABELS = {
    "known": "the adversary is told the labels",
    "inferred": "the adversary infers the labels from the update",
    "joint": "the adversary searches for the labels together with the record",
}


def replayed(diagnosis: Diagnosis | None) -> dict[str, str]:
    """Does our client replay the user's?"""
    if diagnosis is None:
        return {"status": "not checked", "sentence": "The set-up was not checked against your client."}
    return {"status": diagnosis.status, "sentence": diagnosis.sentence}


def assumed(checkpoints: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What single adversaries had to assume of a defense, each sentence once."""
    said = {
        (f"{adversary['name']} against {defense['name']}", sentence): None
        for checkpoint in checkpoints
        for defense in checkpoint["defenses"]
        for adversary in defense["adversaries"]
        for sentence in adversary["assumed"]
    }
    return [{"number": number, "assumes": sentence} for number, sentence in said]


def ledger(spec: Spec, prepared: Prepared, diagnosis: Diagnosis | None) -> list[dict[str, str]]:
    """Number → assumption, a line each."""
    granted = ", ".join(spec.threat.grants)
    rate = "; not the learning rate" if spec.threat.learning_rate == "unknown" else ""
    lines = [
        ("every score", f"{LABELS[spec.threat.labels]}{f', and granted: {granted}' if granted else ''}{rate}"),
        ("every score", "the adversary knows model, weights, recipe and defense (Kerckhoffs)"),
        ("every score", "the server is honest but curious: it reads updates and changes nothing"),
        ("every score", replayed(diagnosis)["sentence"]),
        (
            "every verdict",
            f"these adversaries with this much work: {', '.join(spec.adversaries)}; a stronger one may find more",
        ),
        *(("every verdict", note) for note in spec.notes()),
        (
            "p-values",
            "if nothing leaks, an update and that of another record with the same grants are exchangeable; corrected "
            f"for {comparisons(spec)} comparisons (Holm)",
        ),
        ("exposure of a record", "scores of unrelated updates against it are about normal, with a common spread"),
        (
            "the null by the prior alone",
            f"the mean of {len(prepared.reference)} reference records"
            + (", of the record's own class" if prepared.labels_granted else ""),
        ),
        (
            "all",
            f"{len(prepared.records)} records of {spec.task.data}, disjoint from {len(prepared.tuning)} records that "
            f"chose settings and {len(prepared.reference)} reference records (manifest.json lists them by hash)",
        ),
    ]
    if len(set(spec.checkpoints.train_steps)) > 1 or spec.checkpoints.train_steps != [0]:
        how = "with each defense" if spec.checkpoints.defended else "without a defense"
        lines.append(("checkpoints", f"central SGD on {len(prepared.train)} train records, {how}"))
    if any(protection(text).input for text in spec.defenses.values()):
        drawn = "the other record of the null goes through the same draws of the encoding; the guess through its own"
        lines.append(("scores against encodings", drawn))
    lines.append(("accuracy", f"{len(prepared.test)} test records, as they are"))
    if any(isinstance(part, InstaHide) for text in spec.defenses.values() for part in protection(text).input):
        signs = "the network has seen pixels of random signs only; asked about such pixels it may know more"
        lines.append(("accuracy under InstaHide", signs))
    if spec.checkpoints.seeds > 1:
        lines.append(("accuracy over seeds", "other batches and draws of the defense; weights begin as given"))
    return [{"number": number, "assumes": assumes} for number, assumes in lines]
