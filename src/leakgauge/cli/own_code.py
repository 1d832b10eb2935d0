"""The user's own code: commands that import it say so first, and find it from where they are called."""

from __future__ import annotations

import re
import sys

import typer

_PATH = re.compile(r"(?<![\w'\"])[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def announce(*texts: str) -> None:
    """Say which of the user's code is about to be imported, and let Python find it in the current folder."""
    paths = list(dict.fromkeys(path for text in texts for path in _PATH.findall(text)))
    if paths:
        typer.echo(f"this imports your code: {', '.join(paths)}", err=True)
    if "" not in sys.path:
        sys.path.insert(0, "")
