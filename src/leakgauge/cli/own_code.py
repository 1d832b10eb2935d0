"""The user's own code: commands announce what they import, and find it in the current folder."""

from __future__ import annotations

import sys

import typer

from leakgauge.expr import PATH


def announce(*texts: str) -> None:
    """Announce which user code is about to be imported, and let Python find it in the current folder."""
    paths = list(dict.fromkeys(path for text in texts for path in PATH.findall(text)))
    if paths:
        typer.echo(f"this imports your code: {', '.join(paths)}", err=True)
    if "" not in sys.path:
        sys.path.insert(0, "")
