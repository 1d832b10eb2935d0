"""Expressions: one textual form for every part, the same in Python, TOML, CLI and reports.

``clip(norm=1.0) | gaussian(std=0.1)``, ``1e-4*tv() + 0.1*pixel_range()``. ``repr`` prints them,
:func:`parse` reads them with :mod:`ast`: names come from the registry, the rest is literals and the
operators ``|``, ``+``, ``*``; nothing is evaluated. A stranger's part is
``my_package.module:Object(…)``, or an entry point in the group ``leakgauge.parts``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import math
import operator
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar

from leakgauge.errors import ExpressionError, LeakgaugeError, nearest

T = TypeVar("T")

REGISTRY: dict[str, dict[str, Callable[..., Any]]] = {}
"""kind → name → what makes the part. Filled by :func:`register`."""

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitOr: operator.or_,
    ast.Add: operator.add,
    ast.Mult: operator.mul,
}
_LITERALS = (bool, int, float, str, tuple, dict, type(None))
_STRANGER = re.compile(r"(?<![\w'\"])([A-Za-z_][\w.]*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


class Part:
    """A frozen value with one textual form. ``version`` changes when its results do."""

    version: ClassVar[int] = 1
    expression_name: ClassVar[str] = ""

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={format_value(getattr(self, f.name))}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.init and not _is_default(f, getattr(self, f.name))
        ]
        # its own name, not that of a registered class it derives from: the text must read back as what it is
        name = vars(type(self)).get("expression_name") or f"{type(self).__module__}:{type(self).__qualname__}"
        return f"{name}({', '.join(shown)})"


def register(kind: str, name: str) -> Callable[[T], T]:
    """Give a part its kind and its name in expressions. The second use of a name is an error."""

    def enter(made: T) -> T:
        if name in REGISTRY.setdefault(kind, {}):
            raise ExpressionError(f"the {kind} {name!r} is registered twice", remedy="choose another name")
        REGISTRY[kind][name] = made  # type: ignore[assignment]
        if isinstance(made, type) and issubclass(made, Part):
            made.expression_name = name
        return made

    return enter


def format_value(value: Any) -> str:
    """A value as it stands in an expression."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {format_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"  # the literal that reads back as infinity
    if isinstance(value, tuple):
        inner = ", ".join(map(format_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(type(field.default) is type(value) and field.default == value)
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return bool(type(made) is type(value) and made == value)
    return False


def names(kind: str | tuple[str, ...] | None = None) -> dict[str, Callable[..., Any]]:
    """The registered parts of one kind, of some, or of all; entry points included."""
    kinds = [kind] if isinstance(kind, str) else list(kind or REGISTRY)
    found = {name: made for k in kinds for name, made in REGISTRY.get(k, {}).items()}
    for name, entry in plugins().items():
        if name not in found:
            found[name] = entry.load()
    return found


@cache
def plugins() -> dict[str, EntryPoint]:
    """The parts that installed packages offer, by name; nothing of theirs is imported here."""
    return {entry.name: entry for entry in entry_points(group="leakgauge.parts")}


def parse(text: str, kind: str | tuple[str, ...] | None = None, *, where: str = "expression") -> Any:
    """Read an expression. Errors name the place, the fault and the nearest valid name."""
    strangers: dict[str, str] = {}
    remedy = "write it like clip(norm=1.0) | gaussian(std=0.1)"
    if not isinstance(text, str):
        raise ExpressionError(f"{text!r} is not a text", where=where, remedy=remedy)

    def hide(match: re.Match[str]) -> str:
        key = f"_stranger_{len(strangers)}"
        strangers[key] = match.group(0)
        return key

    try:
        tree = ast.parse(_STRANGER.sub(hide, text.strip()), mode="eval")
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
        for by in REGISTRY.values():
            if name in by:
                return by[name]
        if name in plugins():
            loaded: Callable[..., Any] = plugins()[name].load()
            return loaded
        raise self.fail(f"unknown name {name!r}", nearest(name, names(self.kind)))

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
            p.name if p.default is p.empty else f"{p.name}={format_value(p.default)}"
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
