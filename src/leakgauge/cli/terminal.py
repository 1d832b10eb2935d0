"""What commands print: a run folder, a spec or a file name may be somebody else's, so control characters never pass."""

from __future__ import annotations

import typer

from leakgauge.errors import printable

__all__ = ["echo", "printable"]


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print one text."""
    typer.echo(printable(str(text)), err=err, nl=nl)
