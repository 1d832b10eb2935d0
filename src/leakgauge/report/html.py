"""The report as one HTML file: works from disk, fetches nothing, runs nothing but its own sorting.

A content security policy names the hashes of the page's one style sheet and one script, so that even text which slipped
through escaping could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from leakgauge.report import charts, formats, price, story
from leakgauge.report.advice import advice
from leakgauge.report.pictures import data_uri
from leakgauge.report.price import bills
from leakgauge.report.reading import Run
from leakgauge.report.reproduce import COMMAND, facts, spec_text
from leakgauge.report.schema import Defense, Row
from leakgauge.report.words import ENCODINGS, MEANINGS, METRICS, REACHED, severity


@dataclass(frozen=True)
class Picture:
    """One of the pictures of a record; without a source its place says why."""

    title: str
    source: str | None
    alt: str


@dataclass(frozen=True)
class Exhibit:
    """One record, side by side: original, best reconstruction, null; and what the client made of it, and was found."""

    rank: str
    row: Row
    pictures: tuple[Picture, ...]


def html(run: Run) -> str:
    """The whole page."""
    result, found = run.result, story.subjects(run.result)
    script, style = Markup(_part("sort.js")), Markup(_part("style.css"))
    used = [m for word, m in MEANINGS.items() if any(s.word == word for s in found)]
    page = (
        _environment()
        .get_template("report.html")
        .render(
            run=run,
            result=result,
            found=found,
            headline=story.headline(found),
            audited=story.audited(found),
            control=story.control(result),
            meanings=MEANINGS,
            used=used,
            unused=[m for m in MEANINGS.values() if m not in used],
            metric=METRICS.get(result.metric, result.metric),
            exhibits=exhibits,
            severity=severity,
            charts=charts,
            f=formats,
            facts=facts(run),
            task=dict(facts(run)),
            command=COMMAND,
            spec=spec_text(result),
            script=script,
            style=style,
            script_hash=_hash(script),
            style_hash=_hash(style),
            several=len(result.checkpoints) > 1,
            advice=advice(result, bills(run)),
            bills=bills(run),
            price=price,
            encoded=any(d.encoding for c in result.checkpoints for d in c.defenses),
            encodings=ENCODINGS,
            reached=REACHED,
            ablated=any(d.ablation for c in result.checkpoints for d in c.defenses),
        )
    )
    return page.strip() + "\n"


def exhibits(run: Run, defense: Defense) -> list[Exhibit]:
    """The most exposed, the one nearest to the median score (of two the more exposed), and the least exposed record."""
    rows = defense.records
    places = dict(enumerate(("most exposed", "least exposed")))
    if len(rows) > 2:
        middle = median(r.score for r in rows)
        nearest = min(range(1, len(rows) - 1), key=lambda i: round(abs(rows[i].score - middle), 9))
        places = {0: "most exposed", nearest: "median", len(rows) - 1: "least exposed"}
    return [_exhibit(run, name, rows[i], defense) for i, name in places.items() if i < len(rows)]


def _exhibit(run: Run, rank: str, row: Row, defense: Defense) -> Exhibit:
    metric = run.result.metric
    score, null = formats.score(row.score, metric), formats.score(row.null, metric)
    about = f"record {row.record} under {defense.name}"
    made = (
        Picture("original", data_uri(run.original(row.record)), f"original: {about}"),
        Picture(
            "reconstruction",
            data_uri(run.reconstruction(row.cell, row.row)),
            f"best reconstruction of {about}, {metric} {score}",
        ),
        Picture("null", data_uri(run.reconstruction(row.null_cell, row.null_row)), f"null of {about}, {metric} {null}"),
    )
    return Exhibit(rank, row, made + _encodings(run, row, defense))


def _encodings(run: Run, row: Row, defense: Defense) -> tuple[Picture, ...]:
    """What the client trained on in place of the record, and what was found of that."""
    if row.encoding is None or defense.encoding is None:
        return ()
    called, score = defense.encoding.called, formats.score(row.encoding.score, run.result.metric)
    truth, found = (run.reconstruction(row.encoding.cell, row.row, name) for name in ("encoded", "encodings"))
    about = f"{called} of record {row.record} under {defense.name}"
    return (
        Picture(called, data_uri(truth), f"{about}: what the client trained on"),
        Picture("found of it", data_uri(found), f"reconstruction of the {about}, {run.result.metric} {score}"),
    )


@cache
def _part(name: str) -> str:
    return files("leakgauge.report").joinpath("page", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_part),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
