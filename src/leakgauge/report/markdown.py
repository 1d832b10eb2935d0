"""The report as Markdown: for a pull request, a ticket, a mail. No pictures, hence nothing private but scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from leakgauge.audit.judge.words import WORDS
from leakgauge.report import formats, price, story
from leakgauge.report.advice import advice
from leakgauge.report.columns import columns
from leakgauge.report.columns import text as column_text
from leakgauge.report.price import bills
from leakgauge.report.reading import Run
from leakgauge.report.reproduce import COMMAND, facts, spec_text
from leakgauge.report.words import COLUMNS, ENCODINGS, REACHED, TREATMENTS

MOST_COLUMNS = 10
"""Features of a table that are listed, those that leak most."""

_SPECIAL = re.compile(r"([\\`*_\[\]{}#|~!])")


def plain(text: str) -> str:
    """Text that Markdown shows as it is: one line, no markup, no HTML."""
    return _SPECIAL.sub(r"\\\1", escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks inside; a bar may stand in a table."""
    text = " ".join(text.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [_row(heads), _row(["---"] * len(heads)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown(run: Run) -> str:
    """The whole report as text; there are no pictures and no labels in it, redacted or not."""
    result, subjects = run.result, story.subjects(run.result)
    lines = [f"# {plain(story.headline(subjects))}", ""]
    lines += [f"- **Audited.** {plain(story.audited(subjects))}."]
    lines += [f"- **Scope.** {plain(result.scope)}", f"- **Your client.** {plain(result.replay.sentence)}"]
    lines += [f"- **Positive control.** {plain(story.control(result))}"]
    lines += [f"- **Adversaries.** {plain(note)}." for note in result.notes]
    lines += ["", "## Verdicts", "", *_verdicts(run)]
    lines += ["", "## What this means", ""]
    lines += [f"- **{m.word}**: {plain(m.plain)}" for m in WORDS.values() if any(s.word == m.word for s in subjects)]
    lines += _encodings(run)
    lines += _bounds(run)
    sentences = advice(result, bills(run))
    lines += ["", "## What to do", "", *(f"- {plain(line)}." for line in sentences)] if sentences else []
    lines += [
        "",
        "## Most exposed records",
        "",
        f"Score: {plain(result.judge.title)}.",
        "",
        *_records(run),
    ]
    lines += _columns(run)
    lines += _treatments(run)
    lines += [
        "",
        "## What the numbers assume",
        "",
        *grid(("number", "assumes"), ((plain(x.number), plain(x.assumes)) for x in result.ledger)),
    ]
    lines += _prices(run)
    lines += _structure(run)
    lines += _grants(run)
    if result.faults:
        lines += ["", "## Faults", "", *(f"- {code(cell)}: {plain(why)}" for cell, why in result.faults.items())]
    lines += [
        "",
        "## How to reproduce",
        "",
        f"`{COMMAND}` with this spec:",
        "",
        *_fenced(spec_text(result), "toml"),
        "",
    ]
    lines += [f"- {plain(name)}: {plain(value)}" for name, value in facts(run)]
    return "\n".join(lines) + "\n"


def _verdicts(run: Run) -> list[str]:
    result = run.result
    several = len(result.checkpoints) > 1
    heads = (
        "defense",
        *(("step",) if several else ()),
        "verdict",
        "why",
        f"gain in {plain(result.judge.label)}",
        "p",
        "bound",
        "expression",
    )
    rows = [
        (
            plain(d.name),
            *((str(c.step),) if several else ()),
            f"**{d.attack.verdict}**",
            plain(d.attack.why),
            plain(formats.gain(d.attack.excess, result.judge)),
            plain(formats.p_value(d.attack.p)),
            formats.bound(d.bound),
            code(d.expression),
        )
        for c, d in result.each()
    ]
    return grid(heads, rows)


def _records(run: Run) -> list[str]:
    """The three most exposed records of each defense."""
    judge = run.result.judge
    rows = [
        (
            plain(s.name),
            str(r.record),
            plain(judge.text(r.score)),
            plain(judge.text(r.null)),
            formats.p_value(r.exposure),
        )
        for s in story.subjects(run.result)
        for r in s.defense.records[:3]
    ]
    return grid(("defense", "record", plain(judge.label), "null", "exposure"), rows)


def _encodings(run: Run) -> list[str]:
    """Scores against what the client trained on, where that is not the records."""
    judge = run.result.judge
    rows = [
        (
            plain(d.name),
            str(c.step),
            plain(d.encoding.called),
            formats.encoding(d.encoding),
            plain(judge.text(d.encoding.mean)),
            plain(formats.gain(d.encoding.excess, judge)),
            plain(formats.p_value(d.encoding.p)),
            formats.above(d, run.result.thresholds.recognisable),
        )
        for c, d in run.result.each()
        if d.encoding is not None
    ]
    if not rows:
        return []
    label = plain(judge.label)
    heads = ("defense", "step", "of", "recognised", f"mean {label}", f"gain in {label}", "p", "records recognised")
    return ["", "## Scored against what the client trained on", "", ENCODINGS, "", *grid(heads, rows)]


def _columns(run: Run) -> list[str]:
    """Which features of a table leak."""
    table = columns(run.result)
    if table is None:
        return []
    rows = [(plain(name), *map(column_text, cells)) for name, cells in table.rows[:MOST_COLUMNS]]
    rest = len(table.rows) - len(rows)
    lines = [
        "",
        "## Which features leak",
        "",
        plain(COLUMNS.format(tolerance=run.result.domain.tolerance or 0.0)) + ".",
    ]
    lines += ["", *grid(("feature", *map(plain, table.defenses)), rows)]
    return [*lines, "", f"{rest} more features leak less."] if rest else lines


def _treatments(run: Run) -> list[str]:
    """What adversaries did about what they were not told."""
    rows = [
        (plain(name), plain(adversary), code(t.address), plain(t.how), plain(t.sentence))
        for name, by in run.result.treatments.items()
        for adversary, treatments in by.items()
        for t in treatments
    ]
    heads = ("defense", "adversary", "nuisance", "treatment", "in words")
    return ["", f"## {TREATMENTS}", "", *grid(heads, rows)] if rows else []


def _structure(run: Run) -> list[str]:
    """What leaks by structure, whatever the attacks found."""
    leaks = [f"- **{plain(x.name)}** ({plain(x.severity)}): {plain(x.sentence)}" for x in run.result.preflight]
    return ["", "## What leaks by structure", "", *leaks] if leaks else []


def _bounds(run: Run) -> list[str]:
    """What is proven of each defense, and on what it rests; only those with a proof."""
    lines: list[str] = []
    for subject in story.subjects(run.result):
        bound = subject.defense.bound
        if bound is None or bound.ceiling is None:
            continue
        sentences = [bound.why]
        figures = (("capacity", bound.log_capacity), ("differential privacy", bound.epsilon))
        sentences += [f"{name}: {formats.proven(f)}" for name, f in figures if f is not None and f.value is not None]
        sentences += [bound.corridor.sentence] if bound.corridor else []
        ceiling = formats.bound(bound)
        if ceiling != formats.NOTHING:
            ceiling += f" recognised{f', per {bound.unit}' if bound.unit else ''}"
        lines.append(f"- **{plain(subject.name)}** ({plain(ceiling)}): {plain('; '.join(sentences))}.")
        lines += [f"  - assumes: {plain(assumed)}" for assumed in bound.assumptions]
    reached = f"Beside each, what the attack reached: {REACHED}."
    return ["", "## Bounds: what no adversary exceeds", "", reached, "", *lines] if lines else []


def _prices(run: Run) -> list[str]:
    """What one record costs an adversary, and what the defense costs its user."""
    listed = bills(run)
    if not listed:
        return []
    several = len(run.result.checkpoints) > 1
    trained = any(b.training for b in listed)
    heads = (
        "defense",
        *(("step",) if several else ()),
        "accuracy",
        *(("training",) if trained else ()),
        "strongest adversary",
        "one attack",
        "one record, end to end",
    )
    rows = [
        (
            plain(b.name),
            *((str(b.step),) if several else ()),
            formats.accuracy(price.defense(run.result, b)),
            *((f"× {b.training:.2f}" if b.training else "–",) if trained else ()),
            plain(b.adversary),
            price.duration(b.attack),
            price.one_record(b),
        )
        for b in listed
    ]
    return ["", "## Utility and price", "", *grid(heads, rows), "", plain(price.explained(listed))]


def _grants(run: Run) -> list[str]:
    """What each grant was worth, where that was asked."""
    rows = [
        (plain(d.name), str(c.step), plain(g.grant), plain(formats.gain(g, run.result.judge)))
        for c, d in run.result.each()
        for g in d.ablation
    ]
    if not rows:
        return []
    heads = ("defense", "step", "grant", f"loss of {plain(run.result.judge.label)} without it")
    return ["", "## What each grant was worth", "", *grid(heads, rows)]


def _fenced(text: str, language: str) -> list[str]:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return [f"{fence}{language}", text.rstrip("\n"), fence]
