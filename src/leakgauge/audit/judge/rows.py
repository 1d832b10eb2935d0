"""What is said of one defense, piece by piece: its records, its columns, its adversaries, its grants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leakgauge.audit.judge.arms import NULLS, Arms, Encodings
from leakgauge.audit.judge.finished import Finished, Where
from leakgauge.audit.judge.statistics import best_of, excess
from leakgauge.audit.judge.values import Adversary, Column, EncodingRow, Grant, Record
from leakgauge.audit.plan import threats
from leakgauge.types import Domain


def records(
    finished: Finished, where: Where, arms: Arms, early: Encodings | None, metric: str, labels: Sequence[int]
) -> list[Record]:
    """Every record with its best reconstruction and the best null; recognised ones, then the most exposed, first."""
    best = {name: arms.best("real", name) for name in arms.prior}
    nulls = {arm: arms.best(arm, metric) for arm in NULLS if arm != "prior"}
    exposure, recognised = arms.exposure(), arms.recognised(metric, finished.study.metrics.threshold)
    rows = []
    for i, label in enumerate(labels):
        arm = max(nulls, key=lambda null: (nulls[null][i], null))
        winner = arms.winner("real", metric, i)
        cell, row = finished.place(where, winner, "real", i)
        null_cell, null_row = finished.place(where, arms.winner(arm, metric, i), arm, i)
        rows.append(
            Record(
                record=i,
                label=label,
                score=float(best[metric][i]),
                scores={name: float(scores[i]) for name, scores in best.items()},
                null=float(nulls[arm][i]),
                prior=float(arms.prior[metric][i]),
                recognised=bool(recognised[i]),
                exposure=float(exposure[i]),
                adversary=winner,
                cell=cell,
                row=row,
                null_cell=null_cell,
                null_row=null_row,
                encoding=_encoding(finished, where, early.arms, metric, i) if early else None,
            )
        )
    return sorted(rows, key=lambda row: (not row.recognised, row.exposure, -row.score, row.record))


def _encoding(finished: Finished, where: Where, arms: Arms, metric: str, record: int) -> EncodingRow:
    """The best score against one record's encoding, and the cell that holds it, at the record's row."""
    winner = arms.winner("real", metric, record)
    cell, _ = finished.place(where, winner, "real", record)
    score, null = arms.scores["real"][winner][metric][record], arms.null(metric)[record]
    return EncodingRow(score=float(score), null=float(null), adversary=winner, cell=cell)


def columns(finished: Finished, domain: Domain, rows: Sequence[Record], tolerance: float) -> list[Column]:
    """Which features of a table leak: how often each is right in the best reconstructions, and in the best nulls."""
    if domain.kind != "table" or not rows:
        return []
    real, null = (
        np.array([finished.store.result(cell)["errors"][row] for cell, row in places])
        for places in ([(r.cell, r.row) for r in rows], [(r.null_cell, r.null_row) for r in rows])
    )
    right, guessed = (real <= tolerance).mean(0), (null <= tolerance).mean(0)
    named = domain.features or [None] * real.shape[1]
    return [
        Column(
            name=feature.name if feature else f"column {i}",
            right=float(right[i]),
            null=float(guessed[i]),
            error=None if feature and feature.categories else float(np.median(real[:, i])),
        )
        for i, feature in enumerate(named)
    ]


def adversaries(finished: Finished, where: Where, arms: Arms, early: Encodings | None, metric: str) -> list[Adversary]:
    """Every adversary with its scores, what it assumed, and how it treats what is hidden from it."""
    return [_adversary(finished, where, arms, early, metric, name) for name in arms.adversaries]


def _adversary(
    finished: Finished, where: Where, arms: Arms, early: Encodings | None, metric: str, name: str
) -> Adversary:
    cells = finished.read(where, name) or []
    added = finished.borrowed.get((where, name))
    own = [] if added is None else [f"adds {added[0].defense!r} to what was sent, then attacks that: it finds more"]
    return Adversary(
        name=name,
        expression=cells[0]["adversary"],
        scores={arm: {m: tuple(v.tolist()) for m, v in by[name].items()} for arm, by in arms.scores.items()},
        labels=sum(sum(cell["labels"]) for cell in cells),
        label_share=float(np.mean([share for cell in cells for share in cell["label_shares"]])),
        mean=float(arms.scores["real"][name][metric].mean()),
        encoding=float(early.arms.scores["real"][name][metric].mean()) if early else None,
        evaluations=sum(cell["evaluations"] for cell in cells),
        assumed=(*own, *sorted({sentence for cell in cells for sentence in cell["assumed"]})),
        tuned=tuple(cells[0].get("tuned", ())),
        treatments=tuple(cells[0].get("treatments", ())),
    )


def ablation(finished: Finished, where: Where, arms: Arms, metric: str) -> list[Grant]:
    """What each grant was worth: the best score with it, less the best without, per update."""
    worth = []
    for grant in threats(finished.study):
        cells = [finished.read(where, name, without=grant) for name in arms.adversaries]
        without = [np.concatenate([cell["scores"][metric] for cell in each]) for each in cells if each]
        if len(without) == len(cells):
            loss = excess(arms.by_update(arms.best("real", metric)), arms.by_update(best_of(without)))
            right = max(float(np.mean([one for cell in each for one in cell["labels"]])) for each in cells if each)
            numbers = loss.model_dump(exclude={"p"})
            worth.append(Grant(grant=grant, labels=round(right, 6), **numbers))
    return worth
