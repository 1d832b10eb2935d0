"""What counts of a module once it is known which of its functions ran.

Of a function that ran its code counts; of another one its head where it is a method or decorated, since it may override
a method, be asked for by name, or be registered. What runs at import counts, but for imports of names that nothing of
this uses from modules that were loaded anyway, for the ``version`` of a part, which names its results, and for
constants whose names nothing uses, in any module.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from evidence.syntax import Home, bound, chains, dump, functions, head, imports, outline, walk

Importing = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Function:
    """A function of a module: digest of its code, what counts where it did not run, and the names it uses."""

    name: str
    digest: str
    head: str
    uses: frozenset[str]


@dataclass(frozen=True)
class Constant:
    """A name that gets a value without a call: digest of its statements, and the names they use."""

    digest: str
    uses: frozenset[str]


class Contents:
    """A module in pieces."""

    def __init__(self, tree: ast.Module, package: str, *, is_package: bool) -> None:
        rest = outline(tree)
        statements = [node for node in rest.body if isinstance(node, Importing)]
        self.constants: dict[str, Constant] = {}
        if not is_package:  # what a package imports and names is there for others
            for node in filter(_is_constant, rest.body):
                for name in bound(node):
                    known = self.constants.get(name, Constant("", frozenset()))
                    self.constants[name] = Constant(known.digest + _digest(node), known.uses | _names(node))
            rest.body = [node for node in rest.body if not isinstance(node, Importing) and not _is_constant(node)]
        self.imports = {} if is_package else _homes(statements, package)
        self.at_import, self.uses = _digest(rest), _names(rest)
        self.functions = [_function(name, node) for name, node in functions(tree)]

    def used(self, ran: Collection[str]) -> set[str]:
        """The names that what runs at import and the functions that ran use."""
        return set(self.uses.union(*(function.uses for function in self.functions if function.name in ran)))

    def used_by(self, names: Collection[str]) -> set[str]:
        """The names that those of its constants use which are among some names."""
        return {name for one, constant in self.constants.items() if one in names for name in constant.uses}

    def digests(self, ran: Collection[str], used: Collection[str], loads: Callable[[Home], bool]) -> Iterator[str]:
        """A line for everything that counts, given the functions that ran, the names that are used in any module, and
        whether an import would load more."""
        yield self.at_import
        for function in self.functions:
            if function.name in ran:
                yield f"{function.name}:{function.digest}"
            elif function.head:
                yield f"{function.name}:{function.head}"
        counted = [name for name in self.constants if name in used]
        for name in counted:
            yield f"{name}:{self.constants[name].digest}"
        here = self.used(ran) | self.used_by(counted)
        for name, home in self.imports.items():
            if name in here or loads(home):
                yield f"import {name}:{home}"


def _is_constant(statement: ast.stmt) -> bool:
    """``NAME = …`` without a call: nothing happens but that a name gets a value."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not bound(statement):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    plain = all(isinstance(node, ast.Name | ast.Tuple) for node in targets)
    return plain and not any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _homes(statements: list[Importing], package: str) -> dict[str, Home]:
    return {name: home for one in statements for name, home in imports(one, package).items()}


def _function(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    plain = name.isidentifier() and not node.decorator_list and not name.startswith("__")
    return Function(name, _digest(node), "" if plain else head(node), _names(node))


def _digest(node: ast.AST) -> str:
    return hashlib.sha256(dump(node).encode()).hexdigest()


def _names(node: ast.AST) -> frozenset[str]:
    """Every name that some code uses, attributes included."""
    return frozenset(name for chain in chains(walk(node)) for name in chain)
