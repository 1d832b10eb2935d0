"""The text of an expression before it is read: the user's own objects in it, and its links."""

from __future__ import annotations

import ast
import re

PATH = re.compile(r"(?<![\w.'\"])[A-Za-z_][\w.]*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
"""An object of the user's own, ``package.module:name``, inside an expression.

None begins after a dot, so that every text is read in one pass."""


def hidden(text: str) -> tuple[str, dict[str, str]]:
    """The expression with every path of the user's replaced by a plain name."""
    own: dict[str, str] = {}

    def hide(match: re.Match[str]) -> str:
        key = f"_own_{len(own)}"
        own[key] = match.group(0)
        return key

    return PATH.sub(hide, text), own


def pieces(tree: ast.expr) -> list[ast.expr]:
    """The links of a chain."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        return pieces(tree.left) + pieces(tree.right)
    return [tree]
