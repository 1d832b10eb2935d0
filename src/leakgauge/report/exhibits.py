"""Records side by side: original, best reconstruction, best null; as pictures, or as the features of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from leakgauge.audit.judge.values import Defense, Record
from leakgauge.report import features
from leakgauge.report.features import Line
from leakgauge.report.pictures import data_uri
from leakgauge.report.reading import Run


@dataclass(frozen=True)
class Picture:
    """One of the pictures of a record; without a source its place says why."""

    title: str
    source: str | None
    alt: str


@dataclass(frozen=True)
class Exhibit:
    """One record: pictures of it, or its features line by line; and what the client made of it, and was found."""

    rank: str
    row: Record
    pictures: tuple[Picture, ...] = ()
    lines: tuple[Line, ...] = ()
    left_out: int = 0
    """Features that were not recovered so well, and are not listed."""


def exhibits(run: Run, defense: Defense) -> list[Exhibit]:
    """The most exposed, the one nearest to the median score (of two the more exposed), and the least exposed record."""
    rows = defense.records
    places = dict(enumerate(("most exposed", "least exposed")))
    if len(rows) > 2:
        middle = median(r.score for r in rows)
        nearest = min(range(1, len(rows) - 1), key=lambda i: round(abs(rows[i].score - middle), 9))
        places = {0: "most exposed", nearest: "median", len(rows) - 1: "least exposed"}
    show = KINDS.get(run.result.domain.kind, _pictures)
    return [show(run, rank, rows[i], defense) for i, rank in places.items() if i < len(rows)]


def _pictures(run: Run, rank: str, row: Record, defense: Defense) -> Exhibit:
    judge, about = run.result.judge, f"record {row.record} under {defense.name}"
    pictures = (
        Picture("original", data_uri(run.original(row.record)), f"original: {about}"),
        Picture(
            "reconstruction",
            data_uri(run.reconstruction(row.cell, row.row)),
            f"best reconstruction of {about}, {judge.label} {judge.text(row.score)}",
        ),
        Picture(
            "null",
            data_uri(run.reconstruction(row.null_cell, row.null_row)),
            f"null of {about}, {judge.label} {judge.text(row.null)}",
        ),
    )
    return Exhibit(rank, row, pictures + _encodings(run, row, defense))


def _encodings(run: Run, row: Record, defense: Defense) -> tuple[Picture, ...]:
    """What the client trained on in place of the record, and what was found of that."""
    if row.encoding is None or defense.encoding is None:
        return ()
    judge, called = run.result.judge, defense.encoding.called
    truth, recovered = (run.reconstruction(row.encoding.cell, row.row, name) for name in ("encoded", "encodings"))
    about = f"{called} of record {row.record} under {defense.name}"
    score = f"{judge.label} {judge.text(row.encoding.score)}"
    return (
        Picture(called, data_uri(truth), f"{about}: what the client trained on"),
        Picture("found of it", data_uri(recovered), f"reconstruction of the {about}, {score}"),
    )


def _table(run: Run, rank: str, row: Record, defense: Defense) -> Exhibit:
    original, reconstruction = run.original(row.record), run.reconstruction(row.cell, row.row)
    null = run.reconstruction(row.null_cell, row.null_row)
    lines = features.lines(run.result.domain, original, reconstruction, null)
    return Exhibit(rank, row, lines=features.nearest(lines), left_out=max(0, len(lines) - features.MOST))


KINDS: Mapping[str, Callable[[Run, str, Record, Defense], Exhibit]] = {"image": _pictures, "table": _table}
"""How the records of a domain are shown."""
TABULAR = ("table",)
"""Domains whose records are shown feature by feature."""
