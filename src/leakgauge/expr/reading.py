"""From the text of an expression to its part: names from the registry, literals, operators; nothing is evaluated.

Every fault of an expression is listed at once. ``read`` can leave the user's own code alone (``own_code=False``): what
depends on it is then not built, and the rest is examined all the same.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from leakgauge.errors import ExpressionError, LeakgaugeError, SeveralFaultsError, nearest
from leakgauge.expr import parts
from leakgauge.expr.paths import PATH, hidden, pieces

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitOr: operator.or_,
    ast.Add: operator.add,
    ast.Mult: operator.mul,
}
_LITERALS = (bool, int, float, str, tuple, dict, type(None))
_ACCEPTED = {"attack": ("attack", "adversary")}
"""Kinds that may stand where another is wanted; elsewhere a kind stands for itself."""
_REMEDY = "write it like clip(norm=1.0) | gaussian(std=0.1)"
MOST_FAULTS = 8


class _Unbuilt:
    """The value of a node that has a fault, or that needs code which must not be imported."""


_UNBUILT = _Unbuilt()


@dataclasses.dataclass(frozen=True)
class Reading:
    """What an expression says: the ``value``, or all its ``faults``.

    ``own`` lists the user's own objects it names. The value is None where there are faults, and where it would have
    needed the user's code and that was not allowed.
    """

    text: str
    value: Any = None
    faults: tuple[LeakgaugeError, ...] = ()
    own: tuple[str, ...] = ()

    def get(self) -> Any:
        """The value, or an error with every fault."""
        if len(self.faults) > 1:
            raise SeveralFaultsError(self.faults)
        for fault in self.faults:
            raise fault
        return self.value


def parse(text: str, kind: str | tuple[str, ...] | None = None, *, where: str = "expression") -> Any:
    """Read an expression. Errors name the place, the fault and the nearest valid name."""
    return read(text, kind, where=where).get()


def read(
    text: str, kind: str | tuple[str, ...] | None = None, *, where: str = "expression", own_code: bool = True
) -> Reading:
    """What an expression says, with all its faults; ``own_code=False`` imports nothing of the user's."""
    if not isinstance(text, str):
        return Reading(repr(text), faults=(ExpressionError(f"{text!r} is not a text", where=where, remedy=_REMEDY),))
    plain, own = hidden(text.strip())
    reader = _Reader(_short(text), kind, where, own, own_code)
    try:
        value = reader.whole(_tree(plain))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as fault:
        reason = fault.msg if isinstance(fault, SyntaxError) else str(fault) or type(fault).__name__
        unread = ExpressionError(f"cannot read {_short(text)!r} ({reason})", where=where, remedy=_REMEDY)
        return Reading(text, faults=(unread,), own=tuple(own.values()))
    built = None if isinstance(value, _Unbuilt) else value
    return Reading(text, built, tuple(reader.faults[:MOST_FAULTS]), reader.used())


def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


@dataclasses.dataclass
class _Reader:
    text: str
    kind: str | tuple[str, ...] | None
    where: str
    own: dict[str, str]
    own_code: bool
    faults: list[LeakgaugeError] = dataclasses.field(default_factory=list)
    plugins: list[str] = dataclasses.field(default_factory=list)

    def used(self) -> tuple[str, ...]:
        """The user's own objects, and the parts of other packages, that the expression names."""
        return tuple(dict.fromkeys((*self.own.values(), *self.plugins)))

    def fail(self, what: str, remedy: str) -> _Unbuilt:
        self.faults.append(ExpressionError(f"{_short(what)} in {self.text!r}", where=self.where, remedy=remedy))
        return _UNBUILT

    def whole(self, tree: ast.expr) -> Any:
        """The value of the expression, if its links are of the wanted kind."""
        links = [self.link(piece) for piece in pieces(tree)] if self.kind is not None else []
        if all(links):
            return self.value(tree)
        for piece, fits in zip(pieces(tree), links, strict=True):
            if fits:  # the others were examined already
                self.value(piece)
        return _UNBUILT

    def link(self, piece: ast.expr) -> bool:
        """Whether a link is of the wanted kind; one that is not is examined all the same."""
        kinds = self.kinds()
        match piece:
            case ast.Call(func=ast.Name(id=name)):
                homes = [kind for kind, by in parts.REGISTRY.items() if name in by]
                if homes and not set(homes) & set(kinds):
                    article = "an" if kinds[0][0] in "aeiou" else "a"
                    self.fail(f"{name!r} is not {article} {kinds[0]}", f"see `leakgauge list {kinds[0]}`")
                    self.value(piece)
                    return False
        return True

    def kinds(self) -> list[str]:
        """The kinds that are wanted, all if none is said."""
        wanted = [self.kind] if isinstance(self.kind, str) else list(self.kind or parts.REGISTRY)
        return [kind for name in wanted for kind in _ACCEPTED.get(name, (name,))]

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str(text)):
                # a colon inside a string names no object: give back what was hidden
                return re.sub(r"_own_\d+", lambda match: self.own.get(match[0], match[0]), text)
            case ast.Constant(value=value) if isinstance(value, bool | int | float) or value is None:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int | float):
                return -value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return self.together(tuple(map(self.value, items)))
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
                read = [self.value(item) for item in values]
                return self.together(dict(zip(map(self.value, keys), read, strict=True)), read)  # type: ignore[arg-type]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self.combine(op, self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return self.call(name, [self.value(a) for a in args], keywords)
            case ast.Name(id=name):
                if self.resolve(name) is None:  # an unknown name is the better complaint
                    return _UNBUILT
                name = self.own.get(name, name)
                return self.fail(f"{name!r} is not called", f"write {name}() with its parentheses")
        return self.fail(f"{ast.unparse(node)!r} is not allowed", "use names, literals and the operators |, +, * only")

    def together(self, value: Any, items: Iterable[Any] | None = None) -> Any:
        """A collection, unless one of its items could not be built."""
        return _UNBUILT if any(isinstance(item, _Unbuilt) for item in (items or value)) else value

    def combine(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(left, _Unbuilt) or isinstance(right, _Unbuilt):
            return _UNBUILT
        try:
            if all(isinstance(side, _LITERALS) for side in (left, right)):
                raise TypeError("arithmetic on literals: 'x'*10000000000 would fill the memory")
            return _OPERATORS[type(op)](left, right)
        except LeakgaugeError as fault:
            self.faults.append(fault)
            return _UNBUILT
        except (TypeError, OverflowError):
            sign = {ast.BitOr: "|", ast.Add: "+", ast.Mult: "*"}[type(op)]
            return self.fail(
                f"{_short(repr(left), 60)} {sign} {_short(repr(right), 60)} makes no sense",
                "| chains defenses, + adds priors, number*prior scales one",
            )

    def resolve(self, name: str) -> Callable[..., Any] | _Unbuilt | None:
        """What makes the part: None for an unknown name, unbuilt for code that must not be imported."""
        for by in parts.REGISTRY.values():
            if name in by:
                return by[name]
        try:
            if name in self.own:
                _refuse_standard(self.own[name], self.where)
                return self.owned(self.own[name]) if self.own_code else _UNBUILT
            if name in parts.plugins():
                self.plugins.append(name)
                return parts.plugins()[name].load() if self.own_code else _UNBUILT
        except LeakgaugeError as fault:
            self.faults.append(fault)
            return None
        known = {name for kind in self.kinds() for name in parts.REGISTRY.get(kind, {})} | set(parts.plugins())
        self.fail(f"unknown name {name!r}", nearest(name, known))
        return None

    def owned(self, path: str) -> Callable[..., Any]:
        """What makes the user's own part: a class of parts, or of what is called as an attack or a loss is; of a
        model a function, too. It is examined before it is called."""
        target = load(path, where=self.where)
        if isinstance(target, type):
            fits = issubclass(target, parts.Part) or "__call__" in {
                name for cls in target.__mro__ for name in vars(cls)
            }
        else:
            fits = "model" in self.kinds() and inspect.isfunction(target)
        if not fits:
            raise ExpressionError(
                f"{path!r} is no part", where=self.where, remedy="name a class that derives from a part of leakgauge's"
            )
        maker: Callable[..., Any] = target
        return maker

    def call(self, name: str, args: list[Any], keywords: list[ast.keyword]) -> Any:
        maker = self.resolve(name)
        options: dict[str, Any] = {}
        for keyword in keywords:
            if keyword.arg is None:
                self.fail("** is not allowed", "name every argument")
                maker = None
            elif keyword.arg in options:
                self.fail(f"{keyword.arg!r} is given twice", "give every argument once")
                maker = None
            else:
                options[keyword.arg] = self.value(keyword.value)
        if maker is None or isinstance(maker, _Unbuilt):
            return _UNBUILT
        try:
            signature = inspect.signature(maker)
        except (TypeError, ValueError):
            return self.fail(f"{self.own.get(name, name)!r} is no part", "name a class or a function")
        remedy = f"its signature is {name}{_plain(signature)}"
        try:
            signature.bind(*args, **options)
        except TypeError as fault:
            rest, complete, what = _misfit(signature, args, options, str(fault))
            self.fail(f"{name}: {what}", remedy)
            if complete:  # what else is wrong with the arguments that it has
                self.made(name, maker, args, rest, remedy)
            return _UNBUILT
        return self.made(name, maker, args, options, remedy)

    def made(self, name: str, maker: Callable[..., Any], args: list[Any], options: dict[str, Any], remedy: str) -> Any:
        """The part, from arguments that it has."""
        if any(isinstance(value, _Unbuilt) for value in (*args, *options.values())):
            return _UNBUILT
        try:
            return maker(*args, **options)
        except SeveralFaultsError as several:
            self.faults.extend(several.problems)
            return _UNBUILT
        except LeakgaugeError as fault:
            self.faults.append(fault)
            return _UNBUILT
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError) as fault:
            return self.fail(f"{name}: {fault}", remedy)


def _misfit(
    signature: inspect.Signature, args: list[Any], options: dict[str, Any], reason: str
) -> tuple[dict[str, Any], bool, str]:
    """Options without those that nothing takes, whether no other is missing, and what is wrong in words."""
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL]
    if any(p.kind is p.VAR_KEYWORD for p in named):
        return options, False, reason
    rest = {name: value for name, value in options.items() if name in {p.name for p in named}}
    unknown = [name for name in options if name not in rest]
    missing = [p.name for p in named[len(args) :] if p.default is p.empty and p.name not in rest]
    if not unknown:
        return rest, False, reason
    listed, lacks = ", ".join(map(repr, unknown)), ", ".join(map(repr, missing))
    what = (
        f"got unexpected keyword arguments {listed}"
        if len(unknown) > 1
        else f"got an unexpected keyword argument {listed}"
    )
    return rest, not missing, f"{what}, and lacks {lacks}" if missing else what


def _plain(signature: inspect.Signature) -> str:
    return (
        "("
        + ", ".join(
            p.name if p.default is p.empty else f"{p.name}={parts.format_value(p.default)}"
            for p in signature.parameters.values()
        )
        + ")"
    )


_LIBRARIES = frozenset(
    {"leakgauge", "torch", "numpy", "scipy", "safetensors", "PIL", "pydantic", "typer", "rich", "jinja2"}
)
"""What leakgauge itself stands on: their functions open files, load programs and start others; none makes a part."""


def _refuse_standard(path: str, where: str) -> None:
    if _package(path.partition(":")[0]) in sys.stdlib_module_names:  # os:system('…') would be called
        raise ExpressionError(
            f"{path!r} is in the standard library", where=where, remedy="name an object of a package of your own"
        )


def _package(module: str) -> str:
    return module.partition(".")[0]


def load(path: str, *, where: str = "import") -> Any:
    """The object at ``package.module:name``. This imports the user's code.

    The object must belong to the package that the path names: neither the standard library nor what a module happens
    to have imported (``torch:os.system``) holds parts, and the functions of libraries make none. A text that is no
    path, letter by letter, is refused: commands announce paths, and nothing else may be imported.
    """
    if not PATH.fullmatch(path):
        raise ExpressionError(f"{_short(path)!r} is no path", where=where, remedy="write package.module:name")
    _refuse_standard(path, where)
    module, _, name = path.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for piece in name.split("."):
            target = getattr(target, piece)
            if isinstance(target, ModuleType):
                raise ExpressionError(
                    f"{path!r} passes through the module {target.__name__!r}",
                    where=where,
                    remedy="write package.module:name with the module that defines the object",
                )
    except (ImportError, AttributeError) as fault:
        raise ExpressionError(
            f"cannot load {path!r} ({fault})", where=where, remedy="write package.module:name, importable from here"
        ) from None
    if isinstance(target, type) or inspect.isroutine(target):
        home = _package(getattr(target, "__module__", None) or "")
        if home != _package(module) or (inspect.isroutine(target) and home in _LIBRARIES):
            raise ExpressionError(
                f"{path!r} is {home or 'built-in'} code, and no part", where=where, remedy="name an object of your own"
            )
    return target
