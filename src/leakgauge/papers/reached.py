"""The code that a function of this room reaches: what a unit of work depends on, inside :mod:`leakgauge.papers`.

A table's bars, reasons and texts often stand in the same file as its ``measure``; a change of these changes no number.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Name = tuple[str, str]
"""A module and a name in it; all of the module where that is empty."""
ROOM = "leakgauge.papers."
DECLARING = (f"{ROOM}contract", f"{ROOM}sources")
"""Modules in whose words a table is written: no number depends on them."""


def reached_from(module: str, name: str) -> str:
    """The code that a name leads to, in its module and in others of the room, module by module."""
    code, waiting = dict[Name, str](), [(module, name)]
    while waiting:
        place = waiting.pop()
        if place not in code and place[0] not in DECLARING:
            text = _source(place[0])
            statements = _reached(text, place[1]) if place[1] else ast.parse(text).body
            code[place] = _code(text, statements)
            waiting += [home for statement in statements for home in _homes(statement)]
    return "\n".join(f"{place[0]} {place[1]}\n{code[place]}" for place in sorted(code))


def reached(source: str, name: str) -> str:
    """The lines of the top-level statements that a name of a module leads to, in their order, without docstrings."""
    return _code(source, _reached(source, name))


def _reached(source: str, name: str) -> list[ast.stmt]:
    body = ast.parse(source).body
    places: dict[str, list[int]] = {}
    for place, statement in enumerate(body):
        for bound in _bound(statement):
            places.setdefault(bound, []).append(place)
    counted, waiting = set[int](), [name]
    while waiting:
        for place in places.pop(waiting.pop(), []):
            if place not in counted:
                counted.add(place)
                waiting += [node.id for node in ast.walk(body[place]) if isinstance(node, ast.Name)]
    return [body[place] for place in sorted(counted)]


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module binds."""
    if isinstance(statement, Definition):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {one.asname or one.name.partition(".")[0] for one in statement.names}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", statement)]
    nodes = [node for target in targets for node in ast.walk(target)]  # not the variables of comprehensions
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _homes(statement: ast.stmt) -> Iterator[Name]:
    """Where the names come from that a statement imports from this room."""
    if isinstance(statement, ast.ImportFrom) and f"{statement.module}.".startswith(ROOM):
        for one in statement.names:
            below = f"{statement.module}.{one.name}"
            yield (below, "") if _is_module(below) else (str(statement.module), one.name)


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


def _code(source: str, statements: list[ast.stmt]) -> str:
    """The lines of statements, from their first decorators on, without docstrings and empty lines."""
    lines, numbers = source.splitlines(), list[int]()
    for statement in statements:
        notes = {line for node in ast.walk(statement) for line in _docstring(node)}
        begin = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", [])))
        numbers += [line for line in range(begin, (statement.end_lineno or begin) + 1) if line not in notes]
    return "\n".join(lines[line - 1].rstrip() for line in numbers if lines[line - 1].strip())


def _docstring(node: ast.AST) -> range:
    """The lines of a definition's docstring."""
    if isinstance(node, Definition) and ast.get_docstring(node) is not None:
        first = node.body[0]
        return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)


__all__ = ["reached", "reached_from"]
