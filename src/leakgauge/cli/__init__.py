"""The command line: one file per command.

Errors become one line, ``error: where: what; remedy``, and the exit code of their family; an interrupt
becomes 130. A traceback is a bug of ours.
"""

from __future__ import annotations

from leakgauge.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point ``leakgauge``."""
    app()
