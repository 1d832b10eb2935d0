"""What counts of a module once it is known which of its functions ran.

Of a function that ran its code counts; of another one its head where it is a method or decorated, since it may override
a method, be asked for by name, or be registered. What runs at import counts, but for imports of names that nothing of
this uses from modules that were loaded anyway, and for the ``version`` of a part, which names its results.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from evidence.syntax import Home, chains, dump, functions, head, imports, outline, walk

Importing = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Function:
    """A function of a module: digest of its code, what counts where it did not run, and the names it uses."""

    name: str
    digest: str
    head: str
    uses: frozenset[str]


class Contents:
    """A module in pieces."""

    def __init__(self, tree: ast.Module, package: str, *, is_package: bool) -> None:
        rest = outline(tree)
        statements = [node for node in rest.body if isinstance(node, Importing)]
        if not is_package:  # what a package imports is there for others
            rest.body = [node for node in rest.body if not isinstance(node, Importing)]
        self.imports = {} if is_package else _homes(statements, package)
        self.at_import, self.uses = _digest(rest), _names(rest)
        self.functions = [_function(name, node) for name, node in functions(tree)]

    def digests(self, ran: Collection[str], loads: Callable[[Home], bool]) -> Iterator[str]:
        """A line for everything that counts, given the functions that ran, and whether an import would load more."""
        yield self.at_import
        used = self.uses.union(*(function.uses for function in self.functions if function.name in ran))
        for function in self.functions:
            if function.name in ran:
                yield f"{function.name}:{function.digest}"
            elif function.head:
                yield f"{function.name}:{function.head}"
        for name, home in self.imports.items():
            if name in used or loads(home):
                yield f"import {name}:{home}"


def _homes(statements: list[Importing], package: str) -> dict[str, Home]:
    return {name: home for one in statements for name, home in imports(one, package).items()}


def _function(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    plain = name.isidentifier() and not node.decorator_list and not name.startswith("__")
    return Function(name, _digest(node), "" if plain else head(node), _names(node))


def _digest(node: ast.AST) -> str:
    return hashlib.sha256(dump(node).encode()).hexdigest()


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(chain[0] for chain in chains(walk(node)))
