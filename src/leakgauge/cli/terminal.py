"""What commands print: a run folder, a spec or a file name may be somebody else's, so control characters never pass."""

from __future__ import annotations

import unicodedata

import typer


def printable(text: str) -> str:
    """Text without control characters, which could rewrite what a terminal shows; line breaks and tabs stay."""
    return text if text.isascii() and text.isprintable() else "".join(map(_harmless, text))


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print one text."""
    typer.echo(printable(str(text)), err=err, nl=nl)


def _harmless(character: str) -> str:
    fine = character in "\n\t" or character.isprintable() or unicodedata.category(character) == "Zs"
    return character if fine else "\ufffd"
