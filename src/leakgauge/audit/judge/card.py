"""A result in a notebook: one compact table, self-contained, everything escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from leakgauge.audit.judge.words import TONES, WORDS

if TYPE_CHECKING:
    from leakgauge.audit.judge.model import Result
    from leakgauge.audit.judge.values import Defense

_CELL = "padding:0.3em 0.8em;text-align:left;vertical-align:top"
_BADGE = "border-radius:1em;padding:0.1em 0.7em;white-space:nowrap;color:#fff;background:"


def html(result: Result) -> str:
    """Verdict, reason, best score and bound of every defense, and the scope; no script, nothing fetched."""
    heads = ("defense", "verdict", "why", f"best {result.judge.label}", "proven bound")
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in heads)
    rows = "".join(_row(result, defense) for defense in result.defenses.values())
    return (
        f'<table style="border-collapse:collapse"><caption style="text-align:left">{escape(result.scope)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(result: Result, defense: Defense) -> str:
    badge = f'<span style="{_BADGE}{TONES[WORDS[defense.verdict].tone]}">{escape(defense.verdict)}</span>'
    best = max((record.score for record in defense.records), default=None)
    ceiling = defense.bound.ceiling if defense.bound else None
    cells = (
        f'<b title="{escape(defense.expression)}">{escape(defense.name)}</b>',
        badge,
        escape(defense.attack.why),
        escape(result.judge.text(best)),
        "none" if ceiling is None else f"at most {100 * ceiling:.3g} %",
    )
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"
