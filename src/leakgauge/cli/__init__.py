"""The command line: one file per command.

Errors are printed as one line, ``error: where: what; remedy``, with the exit code of their family; an interrupt
exits with 130. A traceback is a bug in leakgauge.
"""

from __future__ import annotations

from leakgauge.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point ``leakgauge``."""
    app()
