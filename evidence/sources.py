"""What a check's numbers depend on: its own code and the modules that it imports, found without running anything, or
the functions that it ran, where :mod:`evidence.execution` saw them.

Two kinds of modules are followed name by name, the modules of checks and the ``__init__`` of packages: only what is
used of them counts, with what always runs at import. Of every other module all code counts, imports inside functions
too, since parts register themselves there and are looked up by text. A string that names a module counts as an import,
since an expression may. In doubt a module counts: a result may be called old that is not, never the other way round.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evidence.executed import Contents
from evidence.syntax import Home, bound, chains, dump, imports, is_for_types, is_text, texts, walk

ROOTS = {"leakgauge": "src/leakgauge", "evidence": "evidence", "benchmarks": "benchmarks", "tests": "tests"}
_FRAMEWORK = (
    "cli",
    "execution",
    "measurement",
    "page",
    "registry",
    "rows",
    "runner",
    "sources",
    "state",
    "store",
    "syntax",
)
FRAMEWORK = frozenset(["evidence", *(f"evidence.{name}" for name in _FRAMEWORK)])
"""Runs checks and prints results: no number depends on it."""
CHECKS = "evidence.checks."
MENTION = re.compile(rf"\b(?:{'|'.join(ROOTS)})(?:\.\w+)+")
OPEN = re.compile(rf"^(?:{'|'.join(ROOTS)})(?:\.\w+)*\.$")
"""The beginning of ``f"leakgauge.{room}"``."""


RESULTS = ("docs/evidence/", "docs/evidence.md", "docs/papers/", "docs/papers.md")
"""Stored results and the pages that are generated from them."""
FIGURES = re.compile(rb"(<!-- evidence:[\w.-]+ -->).*?(<!-- /evidence -->)", re.DOTALL)
"""What is filled in from stored results."""


def is_module(use: str) -> bool:
    """Whether something that a check uses is a module, or a file or folder."""
    return use.partition(".")[0] in ROOTS and "/" not in use


@dataclass(frozen=True)
class Fingerprint:
    """A hash of the code that a check depends on, the files it is in, and imports that lead nowhere."""

    digest: str
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Piece:
    """Some code of a module: what it says, what it refers to, and the names that it uses."""

    digest: str
    targets: frozenset[Home]
    names: frozenset[str]


class Sources:
    """The Python files of the project at ``root``, read once: a new object sees what was edited meanwhile."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}
        self._pieces: dict[ast.AST, Piece] = {}
        self._contents = self._read()

    def _read(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(path for folder in ROOTS.values() for path in (self.root / folder).rglob("*.py")):
            digest.update(str(path).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def fresh(self) -> Sources:
        """These sources, or a new object if any Python file was edited, added or removed since they were read."""
        return self if self._read() == self._contents else Sources(self.root)

    def module(self, name: str) -> Module | None:
        """The module of this name, or None where the project has none."""
        if name not in self._modules:
            top, *rest = name.split(".")
            base = self.root.joinpath(ROOTS[top], *rest) if top in ROOTS else None
            paths = (base / "__init__.py", base.with_suffix(".py")) if base else ()
            path = next((p for p in paths if p.is_file()), None)
            self._modules[name] = Module(name, path) if path else None
        return self._modules[name]

    def piece(self, module: Module, node: ast.AST) -> Piece:
        """Some code of a module with everything that it refers to."""
        if node not in self._pieces:
            text = f"{module.name}:{dump(node)}"
            targets = frozenset(home for home in self._targets(module, node) if home[0].partition(".")[0] in ROOTS)
            names = frozenset(name for chain in chains(walk(node)) for name in chain)
            self._pieces[node] = Piece(hashlib.sha256(text.encode()).hexdigest(), targets, names)
        return self._pieces[node]

    def _targets(self, module: Module, node: ast.AST) -> Iterator[Home]:
        nodes = walk(node)
        statements = [one for one in nodes if isinstance(one, ast.Import | ast.ImportFrom)]
        inside = {name: home for one in statements for name, home in imports(one, module.package).items()}
        yield from inside.values()
        yield from ((alias.name, None) for one in statements if isinstance(one, ast.Import) for alias in one.names)
        homes = module.homes | inside
        for first, *attributes in chains(nodes):
            if first in module.definitions:
                yield module.name, first
            if first in homes:
                yield homes[first]
                current = ".".join(name for name in homes[first] if name)
                for attribute in attributes:
                    if self.module(current) is None:
                        break
                    yield current, attribute
                    current = f"{current}.{attribute}"
        yield from self._mentions(module, texts(nodes))

    def _mentions(self, module: Module, strings: list[str]) -> Iterator[Home]:
        """Modules that a string names, whole or, as in ``f"leakgauge.{room}"``, with another string of the module."""
        for text in strings:
            endings = [e for e in texts(walk(module.tree)) if e.isidentifier()] if OPEN.match(text) else []
            for name in [*MENTION.findall(text), *(text + ending for ending in endings)]:
                if self.module(name):
                    yield name, None

    def fingerprint(self, module: str, function: str, uses: tuple[str, ...] = ()) -> Fingerprint:
        """The fingerprint of a function, and of the modules, files and folders that it ``uses`` without importing."""
        visit = _Visit(self)
        visit.name(module, function)
        for use in uses:
            if is_module(use):
                visit.import_(use)
            else:
                visit.add_files(self.root / use)
        return visit.result()

    def executed(
        self, module: str, function: str, ran: Mapping[str, Sequence[str]], uses: tuple[str, ...] = ()
    ) -> Fingerprint:
        """The fingerprint of what a check ran: of its own module what it refers to, of every other module what runs at
        import and the functions that ran."""
        visit = _Visit(self, within=CHECKS)
        visit.name(module, function)

        def loads(home: Home) -> bool:
            """Whether an import would load a module that was not loaded."""
            place, symbol = home
            return any(name not in {*ran, *FRAMEWORK} and self.module(name) for name in (place, f"{place}.{symbol}"))

        modules = [name for name in ran if name not in FRAMEWORK and not name.startswith(CHECKS)]
        used = self._used({name: ran[name] for name in modules}, visit.names)
        for name in modules:
            visit.executed(name, ran[name], used, loads)
        for use in uses:
            visit.add_files(self.root / use)
        return visit.result()

    def _used(self, ran: Mapping[str, Sequence[str]], used: set[str]) -> set[str]:
        """Every name that something uses which ran, by whatever module, and that constants use which are used."""
        parts = [(module.contents, ran[name]) for name in ran if (module := self.module(name))]
        names = used.union(*(contents.used(functions) for contents, functions in parts))
        while more := set().union(*(contents.used_by(names) for contents, _ in parts)) - names:
            names |= more
        return names


class Module:
    """One module: its statements by the names they define, and where its other names come from."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.is_package = path.name == "__init__.py"
        self.by_name = self.is_package or name.startswith(CHECKS)
        self.package = name if self.is_package else name.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def homes(self) -> dict[str, Home]:
        """Name → where it is imported from, also of names that a package gives lazily and imports for types only."""
        statements = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        return {name: home for one in statements for name, home in imports(one, self.package).items()}

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in bound(statement):
                found.setdefault(name, []).append(statement)
        return found

    @cached_property
    def runs(self) -> list[ast.stmt]:
        """What always runs at import and may matter: of a package also its imports, and what may register a part."""
        return [s for s in self.tree.body if not is_text(s) and not is_for_types(s) and self._runs(s)]

    def _runs(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return self.is_package
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self.is_package and bool(statement.decorator_list)
        if bound(statement):
            return self.is_package and any(isinstance(n, ast.Call) for n in walk(statement))
        return True

    @cached_property
    def contents(self) -> Contents:
        return Contents(self.tree, self.package, is_package=self.is_package)

    @property
    def data(self) -> set[Path]:
        """Files that belong to a package and are not code: bundled records, templates."""
        if not self.is_package:
            return set()
        folders = [p for p in self.path.parent.iterdir() if p.is_dir() and not any(p.glob("*.py"))]
        files = [p for folder in folders for p in folder.rglob("*")] + list(self.path.parent.iterdir())
        return {p for p in files if p.is_file() and p.suffix not in (".py", ".pyc", ".md", ".typed")}


class _Visit:
    """One walk from a function through everything that it can reach."""

    def __init__(self, sources: Sources, within: str = "") -> None:
        self.sources = sources
        self.within = within
        self.visited: set[Home] = set()
        self.digests: set[str] = set()
        self.code: set[Path] = set()
        self.data: set[Path] = set()
        self.missing: set[str] = set()
        self.names: set[str] = set()

    def import_(self, name: str) -> None:
        """A module, and the packages around it, whose ``__init__`` runs first."""
        pieces = name.split(".")
        for end in range(1, len(pieces) + 1):
            self.module(".".join(pieces[:end]))

    def module(self, name: str) -> None:
        """What runs when a module is imported, or all of it where parts of it cannot be told apart."""
        if (name, None) in self.visited or name in FRAMEWORK or not name.startswith(self.within):
            return
        self.visited.add((name, None))
        module = self.sources.module(name)
        if module is None:
            self.missing.add(name)
            return
        self.data |= module.data
        for node in module.runs if module.by_name else [module.tree]:
            self.piece(module, node)

    def name(self, place: str, name: str) -> None:
        """A name of a module: a submodule, an import, a definition; where it is none of these, all of the module."""
        if (place, name) in self.visited or place in FRAMEWORK or not place.startswith(self.within):
            return
        self.visited.add((place, name))
        self.import_(place)
        module, below = self.sources.module(place), f"{place}.{name}"
        if module is None or not module.by_name:
            return
        nodes: list[ast.stmt] | list[ast.Module] = module.definitions.get(name, [])
        if module.is_package and self.sources.module(below):
            self.module(below)
        elif name in module.homes:
            self.target(module.homes[name])
        elif not nodes:
            nodes = [module.tree]
        for node in nodes:
            self.piece(module, node)

    def target(self, home: Home) -> None:
        place, name = home
        if place.partition(".")[0] not in ROOTS:
            return
        if name is None:
            self.import_(place)
        else:
            self.name(place, name)

    def piece(self, module: Module, node: ast.AST) -> None:
        piece = self.sources.piece(module, node)
        self.code.add(module.path)
        if piece.digest not in self.digests:
            self.digests.add(piece.digest)
            self.names |= piece.names
            for home in piece.targets:
                self.target(home)

    def executed(self, name: str, ran: Collection[str], used: Collection[str], loads: Callable[[Home], bool]) -> None:
        """A module that was imported, and the functions of it that ran."""
        module = self.sources.module(name)
        if module is None:
            self.missing.add(name)
            return
        self.data |= module.data
        self.code.add(module.path)
        self.digests |= {f"{name}.{line}" for line in module.contents.digests(ran, used, loads)}

    def add_files(self, path: Path) -> None:
        """A file, or all files of a folder but stored results and their page, which would make themselves old."""
        if not path.exists():
            self.missing.add(path.relative_to(self.sources.root).as_posix())
        inside = {p for p in path.rglob("*") if not self._is_result(p)}
        self.data |= {p for p in {path, *inside} if p.is_file() and p.suffix != ".pyc"}

    def _is_result(self, path: Path) -> bool:
        return path.relative_to(self.sources.root).as_posix().startswith(RESULTS)

    def result(self) -> Fingerprint:
        digest = hashlib.sha256()
        for line in sorted(self.digests | {f"missing {name}" for name in self.missing}):
            digest.update(line.encode() + b"\0")
        for path in sorted(self.data):
            digest.update(path.relative_to(self.sources.root).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(_without_figures(path)).digest())
        return Fingerprint(digest.hexdigest(), tuple(sorted(self.data | self.code)), tuple(sorted(self.missing)))


def _without_figures(path: Path) -> bytes:
    """A file as it was written by hand: in texts, without the figures that are filled in automatically."""
    content = path.read_bytes()
    return FIGURES.sub(rb"\1\2", content) if path.suffix == ".md" else content
