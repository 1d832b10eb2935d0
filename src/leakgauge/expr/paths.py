"""The text of an expression, looked at without evaluating it: its names, its links, what is the user's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

PATH = re.compile(r"(?<![\w'\"])[A-Za-z_][\w.]*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
"""A part of the user's own, ``package.module:name``, inside an expression."""


def hidden(text: str) -> tuple[str, dict[str, str]]:
    """The expression with every path of the user's replaced by a plain name."""
    strangers: dict[str, str] = {}

    def hide(match: re.Match[str]) -> str:
        key = f"_stranger_{len(strangers)}"
        strangers[key] = match.group(0)
        return key

    return PATH.sub(hide, text), strangers


def names(tree: ast.expr) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id


def pieces(tree: ast.expr) -> list[ast.expr]:
    """The links of a chain."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        return pieces(tree.left) + pieces(tree.right)
    return [tree]


def outermost(tree: ast.expr) -> list[str]:
    calls = [piece.func for piece in pieces(tree) if isinstance(piece, ast.Call)]
    return [call.id for call in calls if isinstance(call, ast.Name)]
