"""The user's own code: nothing of it runs without an explicit word, and commands announce what they import."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from leakgauge.cli.terminal import echo
from leakgauge.errors import LeakgaugeError
from leakgauge.expr import PATH, plugins

Allowed = Annotated[
    bool,
    typer.Option("--own-code", help="Import and run code that is named (package.module:name); trust it first."),
]


def announce(*texts: str, allowed: bool = True) -> None:
    """Announce which user code is about to be imported, and let Python find it in the current folder.

    A spec may come from anybody, so that what it names runs only if the user said so. The current folder comes last
    on Python's path: a file in it cannot stand in for an installed package.
    """
    found = [path for text in texts for path in PATH.findall(text)]
    # a part that an installed package offers has a name without a path, and is somebody's code, too
    found += [text for text in texts if text in plugins()]
    paths = list(dict.fromkeys(found))
    if not paths:
        return
    if not allowed:
        raise LeakgaugeError(
            f"this would import and run {', '.join(paths)}",
            where="own code",
            remedy="look at that code; if you trust it, repeat the command with --own-code",
        )
    echo(f"this imports your code: {', '.join(paths)}", err=True)
    if "" not in sys.path:
        sys.path.append("")
