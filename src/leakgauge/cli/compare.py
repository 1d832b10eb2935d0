"""``leakgauge compare``: what changed between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.tables import table
from leakgauge.cli.terminal import echo


def compare(
    before: Annotated[Path, typer.Argument(help="The folder of an audit.")],
    after: Annotated[Path, typer.Argument(help="The folder of a later audit.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
) -> None:
    """Show what changed between two runs: verdicts, scores with intervals, settings.

    \b
    Examples:
      leakgauge compare run1 run2
      leakgauge compare run1 run2 --markdown > change.md

    Needs only the run folders; none of your code is imported.
    """
    from leakgauge.report import compare as between
    from leakgauge.report import read

    comparison = between(read(before), read(after))
    if markdown:
        echo(comparison.markdown(), nl=False)
        return
    for title, (heads, rows) in comparison.tables().items():
        echo(f"{title}:" if rows else f"{title}: no difference")
        if rows:
            table(heads, rows)
    echo(f"Note: {comparison.note}.")
