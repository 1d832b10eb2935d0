"""Constants of a program, read off its syntax tree; nothing is evaluated but literals and their arithmetic."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LARGEST = 1e300
_DEEPEST = 20
_STEPS = 1000
"""Expressions that one value may be made of: names that stand for lists of names would otherwise never end."""
_LONGEST = 50
"""Parts of a dotted name; no import has as many."""


class Unknown:
    """A value that only running the program would give."""


UNKNOWN = Unknown()


@dataclass
class Module:
    """One file: its tree, what its imports mean, and every name that is assigned exactly once."""

    name: str
    path: str
    tree: ast.Module
    origins: dict[str, str] = field(default_factory=dict)
    assigned: dict[str, ast.expr] = field(default_factory=dict)
    aliases: dict[str, ast.expr] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        stored: Counter[str] = Counter()
        for node in ast.walk(self.tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                    stored[name] += 1  # an argument of the same name hides it, a loop changes it
                case ast.Import(names=names):
                    for alias in names:
                        first = alias.name.partition(".")[0]
                        self._import(alias.asname or first, alias.name if alias.asname else first)
                case ast.ImportFrom(module=module, names=names, level=level):
                    home = self._home(level, module)
                    for alias in names:
                        if alias.name == "*":
                            self.stars.append(home)
                        else:
                            self._import(alias.asname or alias.name, f"{home}.{alias.name}")
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    self.assigned[name] = value
        self.ambiguous |= self.origins.keys() & stored.keys()  # imported or assigned: only running would tell
        once = {name for name, count in stored.items() if count == 1} - self.ambiguous
        self.assigned = {name: value for name, value in self.assigned.items() if name in once}
        self.aliases = {
            name: value for name, value in self.assigned.items() if isinstance(value, ast.Name | ast.Attribute)
        }

    def _import(self, name: str, origin: str) -> None:
        if self.origins.setdefault(name, origin) != origin:
            self.ambiguous.add(name)
        self.origins[name] = origin

    def _home(self, level: int, module: str | None) -> str:
        if not level:
            return module or ""
        parents = self.name.split(".")[:-level]
        return ".".join([*parents, *([module] if module else [])])

    def dotted(self, node: ast.expr, *, aliases: bool = True) -> str:
        """The full name of what an expression calls, as far as imports tell: ``flwr.clientapp.mod.LocalDpMod``.

        ``aliases``: also through names that are assigned once, ``Private = LocalDpMod``.
        """
        attributes: list[str] = []
        for _ in range(_LONGEST):
            match node:
                case ast.Name(id=name) if aliases and name in self.aliases:
                    node = self.aliases[name]
                case ast.Name(id=name):
                    return ".".join([self._origin(name), *reversed(attributes)])
                case ast.Attribute(value=value, attr=attr):
                    node = value
                    attributes.append(attr)
                case ast.Call(func=func):
                    node = func
                case _:
                    return ".".join(["", *reversed(attributes)])
        return ""

    def _origin(self, name: str) -> str:
        """What a name means; one that is nowhere defined may come with ``from package import *``."""
        if name in self.origins or name in self.defined:
            return self.origins.get(name, name)
        return f"{self.stars[0]}.{name}" if len(self.stars) == 1 else name

    @cached_property
    def defined(self) -> frozenset[str]:
        """Functions, classes and variables of this file."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        nodes = list(ast.walk(self.tree))
        names = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        return frozenset(names | {node.name for node in nodes if isinstance(node, kinds)})

    @cached_property
    def in_apps(self) -> frozenset[str]:
        """Names that stand in the arguments of a ClientApp."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        apps = [call for call in calls if self.dotted(call.func).rpartition(".")[2] == "ClientApp"]
        arguments = [a for call in apps for a in call.args[1:]]  # the first is client_fn
        arguments += [k.value for call in apps for k in call.keywords if k.arg != "client_fn"]
        return frozenset(inner.id for a in arguments for inner in ast.walk(a) if isinstance(inner, ast.Name))

    @cached_property
    def made_of(self) -> Mapping[str, frozenset[str]]:
        """The names that stand where each name is given its contents."""
        parts: dict[str, set[str]] = {}
        for node in ast.walk(self.tree):
            for name in named_by(node):
                parts.setdefault(name, set()).update(i.id for i in ast.walk(node) if isinstance(i, ast.Name))
        return {name: frozenset(some) for name, some in parts.items()}

    def where(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 0)}"


def named_by(node: ast.AST) -> Iterator[str]:
    """The names that a statement gives contents: ``a = …``, ``a += …``, ``a.append(…)``, ``def a(): …``."""
    match node:
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert")):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name


@dataclass(frozen=True)
class Program:
    """All files of a folder, by their dotted names, and the run's configuration."""

    modules: Mapping[str, Module]
    config: Mapping[str, Any]

    @cached_property
    def secure(self) -> bool:
        """Whether every engine of Opacus's is built in secure mode."""
        engines = [
            {k.arg: self.value(k.value, module) for k in node.keywords}.get("secure_mode") is True
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and module.dotted(node.func).endswith("PrivacyEngine")
        ]
        return bool(engines) and all(engines)

    @cached_property
    def given_to_apps(self) -> frozenset[tuple[str, str]]:
        """Names, with their modules, that are given to a ClientApp, if only as a part of something else."""
        todo = [(module.name, name) for module in self.modules.values() for name in module.in_apps]
        reached: set[tuple[str, str]] = set()
        while todo:
            place = todo.pop()
            if place in reached:
                continue
            reached.add(place)
            module, name = self.modules[place[0]], place[1]
            todo += [(module.name, part) for part in module.made_of.get(name, ())]
            other, own = self._imported(name, module)
            if other is not None:
                todo.append((other.name, own))
        return frozenset(reached)

    def _imported(self, name: str, module: Module) -> tuple[Module | None, str]:
        """The file that a name is imported from, and its name there; None if there is none, or several may be meant."""
        home, _, own = module.origins.get(name, "").rpartition(".")
        if not home:
            return None, own
        if home in self.modules:
            return self.modules[home], own
        some = [other for key, other in self.modules.items() if key.endswith(f".{home}")]
        return (some[0] if len(some) == 1 else None), own

    def value(self, node: ast.expr | None, module: Module) -> Any:
        """The constant that an expression is, or UNKNOWN."""
        return self._value(node, module, 0, iter(range(_STEPS)))

    def _value(self, node: ast.expr | None, module: Module, depth: int, steps: Iterator[int]) -> Any:
        if node is None or depth > _DEEPEST or next(steps, None) is None:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self._value(inner, module, depth + 1, steps)
                return -value if _number(value) else UNKNOWN
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._arithmetic(
                    op, self._value(left, module, depth + 1, steps), self._value(right, module, depth + 1, steps)
                )
            case ast.List(elts=items) | ast.Tuple(elts=items):
                values = [self._value(item, module, depth + 1, steps) for item in items]
                return UNKNOWN if UNKNOWN in values else values
            case ast.Call(func=ast.Name(id="float" | "int" | "str" as kind), args=[inner], keywords=[]):
                return _converted(kind, self._value(inner, module, depth + 1, steps))
            case ast.Subscript(value=table, slice=ast.Constant(value=str(key))) if _is_config(table):
                return self.config.get(key, UNKNOWN)
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[ast.Constant(value=str(key)), *rest]) if (
                _is_config(table)
            ):
                return self.config.get(key, self._value(rest[0], module, depth + 1, steps) if rest else UNKNOWN)
            case ast.Name(id=name):
                return self._named(name, module, depth, steps)
        return UNKNOWN

    def _named(self, name: str, module: Module, depth: int, steps: Iterator[int]) -> Any:
        if name in module.assigned:
            return self._value(module.assigned[name], module, depth + 1, steps)
        other, own = (None, "") if name in module.ambiguous else self._imported(name, module)
        return self._value(other.assigned.get(own), other, depth + 1, steps) if other is not None else UNKNOWN

    def _arithmetic(self, op: ast.operator, left: Any, right: Any) -> Any:
        if not (_number(left) and _number(right)):
            return UNKNOWN
        try:
            value = _OPERATORS[type(op)](left, right)
        except (ZeroDivisionError, OverflowError):
            return UNKNOWN
        return value if abs(value) < _LARGEST else UNKNOWN


def _converted(kind: str, value: Any) -> Any:
    convert: dict[str, type] = {"float": float, "int": int, "str": str}
    try:
        return UNKNOWN if value is UNKNOWN else convert[kind](value)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_config(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "run_config") or (
        isinstance(node, ast.Name) and node.id == "run_config"
    )
