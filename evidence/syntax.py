"""Python source as syntax: what a piece of it says whatever its layout, what it imports, and which names it binds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from copy import copy

Home = tuple[str, str | None]
"""Where a name comes from: a module, and the symbol in it (None: the module itself)."""


def dump(node: ast.AST) -> str:
    """The meaning of a piece of code: the same whatever its comments, docstrings, layout, and version of Python.

    ``ast.dump`` would do, if newer versions did not add fields; here empty fields and kinds of literals are left out.
    """
    parts = []
    for name, value in ast.iter_fields(node):
        if name in ("kind", "type_comment", "ctx") or value is None or value == []:
            continue
        entries = [entry for entry in value if not is_text(entry)] if isinstance(value, list) else [value]
        text = ",".join(dump(entry) if isinstance(entry, ast.AST) else repr(entry) for entry in entries)
        parts.append(f"{name}={text}")
    return f"{type(node).__name__}({';'.join(parts)})"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """The functions of a module and the methods of its classes by their qualified names, in order; those inside other
    functions, or under a condition, belong to what is around them."""
    for node in tree.body:
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")


def outline(tree: ast.Module | ast.ClassDef) -> ast.Module | ast.ClassDef:
    """A module or class without its :func:`functions`: what runs when it is imported."""
    rest = copy(tree)
    rest.body = [
        outline(node) if isinstance(node, ast.ClassDef) else node  # type: ignore[misc]
        for node in tree.body
        if not isinstance(node, Function) and not is_for_types(node) and not _is_version(node)
    ]
    return rest


def _is_version(statement: ast.stmt) -> bool:
    """``version: ClassVar[int] = 3``: it names the results of a part, and changes none."""
    return isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == "version"


def head(function: Function) -> str:
    """A function without its body: its name, arguments and decorators."""
    return ";".join([function.name, dump(function.args), *map(dump, function.decorator_list)])


def is_text(statement: object) -> bool:
    """Whether a statement is a bare string: a docstring, or the note under a constant."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def is_for_types(statement: ast.AST) -> bool:
    """``if TYPE_CHECKING:``, which never runs."""
    if not isinstance(statement, ast.If):
        return False
    test = statement.test
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def walk(node: ast.AST) -> list[ast.AST]:
    """Every node of a piece of code, but for what is only there for types."""
    nodes = [node]
    for current in nodes:  # grows meanwhile
        nodes += [child for child in ast.iter_child_nodes(current) if not is_for_types(child)]
    return nodes


def imports(node: ast.AST, package: str) -> dict[str, Home]:
    """Name → home, for one import statement inside ``package``; no names for any other node."""
    if isinstance(node, ast.Import):
        # `import a.b` binds a, `import a.b as c` binds a.b
        return {
            one.asname or one.name.partition(".")[0]: (one.name if one.asname else one.name.partition(".")[0], None)
            for one in node.names
        }
    if isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        base = parents[: len(parents) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        return {one.asname or one.name: (module, one.name) for one in node.names}
    return {}


def bound(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module defines, imports aside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def texts(nodes: Sequence[ast.AST]) -> list[str]:
    """Every string among the nodes, the constant parts of f-strings included, docstrings not."""
    notes = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and is_text(node)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in notes]
    return [node.value for node in constants if isinstance(node.value, str)]


def chains(nodes: Sequence[ast.AST]) -> set[tuple[str, ...]]:
    """Every name with the attributes after it: ``lg.data.load(x)`` has ``("lg", "data", "load")`` and ``("x",)``."""
    paths = set()
    for node in nodes:
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            paths.add((node.id, *path))
    return paths
