"""``leakgauge report``: rebuild the reports of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from leakgauge.cli import signing
from leakgauge.cli.audit import Gate
from leakgauge.cli.terminal import echo


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a finished audit.")],
    redact: Annotated[bool, typer.Option("--redact", help="Omit labels and all pictures.")] = False,
    formats: Annotated[
        str, typer.Option("--format", help="Comma-separated list of html, md, junit.")
    ] = "html,md,junit",
    fail_on: Annotated[
        Gate, typer.Option("--fail-on", help="The mildest verdict that fails a JUnit test case.")
    ] = Gate.recognisable,
    out: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
        typer.Option("--out", help="Write to this folder instead of the run folder."),
    ] = None,
    sign: signing.Key = None,
) -> None:
    """Rebuild the reports of a run: report.html, report.md and junit.xml, readable only by you.

    \b
    Examples:
      leakgauge report run1
      leakgauge report run1 --redact --out to-share
      leakgauge report run1 --format junit --fail-on detectable

    Needs only the run folder; none of your code is imported. For JSON, read result.json in the run folder.
    """
    from leakgauge.report import report as write
    from leakgauge.storage.signing import private_key
    from leakgauge.storage.signing import sign as signed

    key = private_key(sign) if sign else None
    names = [name.strip() for name in formats.split(",") if name.strip()]
    for path in write(run, formats=names, redact=redact, fail_on=fail_on.value, out=out):
        echo(path)
    if key is not None:
        echo(signed(out or run, (*signing.SIGNED, *signing.BESIDE), key))
