"""Which functions of the project a process ran: what the numbers of a check depend on, seen instead of guessed.

:func:`watch` marks every function of the project's modules that are imported after it, at the price of one assignment
per call. Code that was imported and never called cannot have changed a number; neither can a change of it, as long as
all that did run is the same.
"""

from __future__ import annotations

import ast
import multiprocessing.process
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any

from evidence.syntax import functions, is_text

Ran = dict[str, list[str]]
"""The functions that ran, by module; a module without any was imported."""
_MARKS = "__ran__"
_NAMES: dict[str, list[str]] = {}
_RAN: dict[str, bytearray] = {}
_hidden = False


def watch(roots: Sequence[str]) -> None:
    """Mark the functions of these packages from now on. Nothing is marked in other processes: see :func:`unseen`."""
    sys.meta_path.insert(0, _Finder(frozenset(roots)))
    for kind, method in ((subprocess.Popen, "__init__"), (multiprocessing.process.BaseProcess, "start")):
        setattr(kind, method, _announced(getattr(kind, method)))


def _announced(method: Callable[..., None]) -> Callable[..., None]:
    """A method that starts a process, and says so."""

    @wraps(method)
    def start(*arguments: Any, **how: Any) -> None:
        unseen()
        method(*arguments, **how)

    return start


def unseen() -> None:
    """Say that numbers come from elsewhere, too: another process, or results that an earlier one stored."""
    global _hidden
    _hidden = True


def ran() -> Ran | None:
    """What ran in this process, or None where that is not all."""
    if _hidden:
        return None
    return {
        module: sorted({name for name, mark in zip(_NAMES[module], marks, strict=True) if mark})
        for module, marks in sorted(_RAN.items())
    }


def marks(module: str) -> bytearray:
    """Where the functions of a module leave their marks."""
    return _RAN.setdefault(module, bytearray(len(_NAMES[module])))


class _Finder:
    """Finds modules of the project as usual, and has them loaded with marks."""

    def __init__(self, roots: frozenset[str]) -> None:
        self.roots = roots

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name.partition(".")[0] in self.roots else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> types.CodeType:
        """Compiled from the source, never from a file of bytecode, which has no marks."""
        code: types.CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> types.CodeType:
        tree = ast.parse(data, path)
        marked(tree, self.name)
        code: types.CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code


def marked(tree: ast.Module, module: str) -> None:
    """Let every function of a module begin with its mark."""
    names = _NAMES[module] = []
    for place, (name, node) in enumerate(functions(tree)):
        names.append(name)
        _insert(node, f"{_MARKS}[{place}] = 1")
    _insert(tree, f"from evidence.execution import marks as {_MARKS}\n{_MARKS} = {_MARKS}({module!r})")


def _insert(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> None:
    """Put statements behind the docstring and imports from ``__future__``."""
    place = sum(is_text(s) or getattr(s, "module", None) == "__future__" for s in node.body[:2])
    statements = ast.parse(text).body
    for statement in statements:
        for part in ast.walk(statement):
            if "lineno" in part._attributes:
                part.lineno = part.end_lineno = node.body[0].lineno if node.body else 1  # type: ignore[attr-defined]
    node.body[place:place] = statements
