"""The report as one HTML file: works from disk, fetches nothing, runs nothing but its own sorting.

A content security policy names the hashes of the page's one style sheet and one script, so that even text which slipped
through escaping could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.words import WORDS, severity
from leakgauge.report import charts, formats, price, story
from leakgauge.report.advice import advice
from leakgauge.report.columns import columns
from leakgauge.report.columns import text as column_text
from leakgauge.report.exhibits import TABULAR, exhibits
from leakgauge.report.price import bills
from leakgauge.report.reading import Run
from leakgauge.report.reproduce import COMMAND, facts, spec_text
from leakgauge.report.words import COLUMNS, ENCODINGS, REACHED, TREATMENTS

MOST_ROWS, LEAST_ROWS = 2000, 20
"""Rows of the table of records in all, and of each defense at least: a browser lays out so many at once."""


def html(run: Run) -> str:
    """The whole page."""
    result, subjects = run.result, story.subjects(run.result)
    script, style = Markup(_part("sort.js")), Markup(_part("style.css"))
    used = [m for word, m in WORDS.items() if any(s.word == word for s in subjects)]
    page = (
        _environment()
        .get_template("report.html")
        .render(
            run=run,
            result=result,
            subjects=subjects,
            headline=story.headline(subjects),
            audited=story.audited(subjects),
            control=story.control(result),
            meanings=WORDS,
            used=used,
            unused=[m for m in WORDS.values() if m not in used],
            judge=result.judge,
            others=[m for m in result.metrics if m.name != result.metric],
            exactness=result.meaning(result.thresholds.exactness),
            exhibits=exhibits,
            tabular=result.domain.kind in TABULAR,
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
            listed=_listed(result),
            most_records=max((len(d.records) for _, d in result.each()), default=0),
            encoded=any(d.encoding for _, d in result.each()),
            columns=columns(result),
            column_text=column_text,
            columns_words=COLUMNS.format(tolerance=result.domain.tolerance or 0.0),
            treatments_words=TREATMENTS,
            encodings=ENCODINGS,
            reached=REACHED,
            ablated=any(d.ablation for _, d in result.each()),
        )
    )
    return page.strip() + "\n"


def _listed(result: Result) -> int:
    """How many records of each defense are listed, the most exposed first; the others are in ``result.json``."""
    return max(LEAST_ROWS, MOST_ROWS // max(1, sum(1 for _ in result.each())))


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
