"""``leakgauge key new`` and ``leakgauge verify``: signed results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from leakgauge.cli.terminal import echo

SIGNED = ("result.json", "report.html", "report.md", "junit.xml")
"""What readers rely on."""
BESIDE = ("spec.toml", "plan.json", "environment.json", "manifest.json")
"""What is signed with them, where it is there."""
Key = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
    typer.Option("--sign", help="Sign result and reports with this private key (see `leakgauge key new`)."),
]

app = typer.Typer(help="Keys for signed reports.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def keys() -> None:
    """Keys for signed reports."""


@app.command("new")
def new(path: Annotated[Path, typer.Argument(help="Where to write the private key.")]) -> None:
    """Make a key: PATH is private and signs, PATH.pub is public and verifies (Ed25519, PEM)."""
    from leakgauge.storage.signing import new_key

    public = new_key(path)
    echo(f"wrote {path} (keep it to yourself) and {public} (give it to those who verify)")


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a signed audit or report.")],
    key: Annotated[Path, typer.Option("--key", help="The public key of whoever signed it.")],
) -> None:
    """Check that a result and its reports are what was signed; exit code 2 if not.

    \b
    Examples:
      leakgauge key new auditor.key
      leakgauge audit leakgauge.toml --sign auditor.key
      leakgauge verify leakgauge-run --key auditor.key.pub
    """
    from leakgauge.storage.signing import public_key
    from leakgauge.storage.signing import verify as check

    names = check(run, public_key(key), SIGNED)
    echo(f"signed and unchanged: {', '.join(names)}")
