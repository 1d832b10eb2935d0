"""From the text of an expression to its part: names from the registry, literals, operators; nothing is evaluated."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

from leakgauge.errors import ExpressionError, LeakgaugeError, nearest
from leakgauge.expr import parts
from leakgauge.expr.paths import hidden

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitOr: operator.or_,
    ast.Add: operator.add,
    ast.Mult: operator.mul,
}
_LITERALS = (bool, int, float, str, tuple, dict, type(None))


def parse(text: str, kind: str | tuple[str, ...] | None = None, *, where: str = "expression") -> Any:
    """Read an expression. Errors name the place, the fault and the nearest valid name."""
    remedy = "write it like clip(norm=1.0) | gaussian(std=0.1)"
    if not isinstance(text, str):
        raise ExpressionError(f"{text!r} is not a text", where=where, remedy=remedy)

    plain, strangers = hidden(text.strip())
    try:
        tree = ast.parse(plain, mode="eval")
        return _Reader(_short(text), kind, where, strangers).read(tree.body)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as fault:
        if isinstance(fault, LeakgaugeError):  # a DomainError is a ValueError that already says it all
            raise
        reason = fault.msg if isinstance(fault, SyntaxError) else str(fault) or type(fault).__name__
        raise ExpressionError(f"cannot read {_short(text)!r} ({reason})", where=where, remedy=remedy) from None


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


@dataclasses.dataclass
class _Reader:
    text: str
    kind: str | tuple[str, ...] | None
    where: str
    strangers: dict[str, str]

    def fail(self, what: str, remedy: str) -> ExpressionError:
        return ExpressionError(f"{_short(what)} in {self.text!r}", where=self.where, remedy=remedy)

    def read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str(value)):
                # a colon inside a string names no stranger: give back what was hidden
                return re.sub(r"_stranger_\d+", lambda match: self.strangers.get(match[0], match[0]), value)
            case ast.Constant(value=value) if isinstance(value, bool | int | float) or value is None:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int | float):
                return -value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(map(self.read, items))
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
                return {self.read(k): self.read(v) for k, v in zip(keys, values, strict=True)}  # type: ignore[arg-type]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self.combine(op, self.read(left), self.read(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return self.make(name, [self.read(a) for a in args], keywords)
            case ast.Name(id=name):
                self.resolve(name)  # an unknown name is the better complaint
                shown = self.strangers.get(name, name)
                raise self.fail(f"{shown!r} is not called", f"write {shown}() with its parentheses")
        raise self.fail(f"{ast.unparse(node)!r} is not allowed", "use names, literals and the operators |, +, * only")

    def combine(self, op: ast.operator, left: Any, right: Any) -> Any:
        try:
            if all(isinstance(side, _LITERALS) for side in (left, right)):
                raise TypeError("arithmetic on literals: 'x'*10000000000 would fill the memory")
            return _OPERATORS[type(op)](left, right)
        except TypeError:
            sign = {ast.BitOr: "|", ast.Add: "+", ast.Mult: "*"}[type(op)]
            raise self.fail(
                f"{left!r} {sign} {right!r} makes no sense",
                "| chains defenses, + adds priors, number*prior scales one",
            ) from None

    def resolve(self, name: str) -> Callable[..., Any]:
        if name in self.strangers:
            made: Callable[..., Any] = load(self.strangers[name], where=self.where)
            return made
        for by in parts.REGISTRY.values():
            if name in by:
                return by[name]
        if name in parts.plugins():
            loaded: Callable[..., Any] = parts.plugins()[name].load()
            return loaded
        raise self.fail(f"unknown name {name!r}", nearest(name, parts.names(self.kind)))

    def make(self, name: str, args: list[Any], keywords: list[ast.keyword]) -> Any:
        maker = self.resolve(name)
        options: dict[str, Any] = {}
        for keyword in keywords:
            if keyword.arg is None:
                raise self.fail("** is not allowed", "name every argument")
            if keyword.arg in options:
                raise self.fail(f"{keyword.arg!r} is given twice", "give every argument once")
            options[keyword.arg] = self.read(keyword.value)
        try:
            signature = inspect.signature(maker)
        except (TypeError, ValueError):
            raise self.fail(f"{self.strangers.get(name, name)!r} is no part", "name a class or a function") from None
        try:
            signature.bind(*args, **options)
        except TypeError as fault:
            raise self.fail(f"{name}: {fault}", f"its signature is {name}{_plain(signature)}") from None
        try:
            return maker(*args, **options)
        except LeakgaugeError:
            raise
        except (TypeError, ValueError) as fault:
            raise self.fail(f"{name}: {fault}", f"its signature is {name}{_plain(signature)}") from None


def _plain(signature: inspect.Signature) -> str:
    return (
        "("
        + ", ".join(
            p.name if p.default is p.empty else f"{p.name}={parts.format_value(p.default)}"
            for p in signature.parameters.values()
        )
        + ")"
    )


def load(path: str, *, where: str = "import") -> Any:
    """The object at ``package.module:name``. This imports the user's code; the standard library holds no parts."""
    module, _, name = path.partition(":")
    if module.partition(".")[0] in sys.stdlib_module_names:  # os:system('…') is no part, but would be called
        raise ExpressionError(
            f"{path!r} is in the standard library", where=where, remedy="name an object of a package of your own"
        )
    try:
        found: Any = importlib.import_module(module)
        for piece in name.split("."):
            found = getattr(found, piece)
    except (ImportError, AttributeError) as fault:
        raise ExpressionError(
            f"cannot load {path!r} ({fault})", where=where, remedy="write package.module:name, importable from here"
        ) from None
    return found
