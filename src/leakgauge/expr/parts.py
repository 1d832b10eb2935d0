"""Parts: frozen values with one textual form, in one registry by kind and name."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar

from leakgauge import guards
from leakgauge.errors import DomainError, ExpressionError, brief

T = TypeVar("T")

REGISTRY: dict[str, dict[str, Callable[..., Any]]] = {}
"""kind → name → what makes the part. Filled by :func:`register`."""


class Part:
    """A frozen value with one textual form. ``version`` changes when its results do."""

    version: ClassVar[int] = 1
    expression_name: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # in its own dict: @dataclass leaves it alone

    def __repr__(self) -> str:
        settings = [
            f"{f.name}={format_value(getattr(self, f.name))}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.init and not _is_default(f, getattr(self, f.name))
        ]
        # its own name, not that of a registered class it derives from: the text must read back as what it is
        name = vars(type(self)).get("expression_name") or f"{type(self).__module__}:{type(self).__qualname__}"
        return f"{name}({', '.join(settings)})"


P = TypeVar("P", bound=Part)


def labelled(parts: Iterable[P]) -> dict[str, P]:
    """Parts by their labels: the name of each in expressions, ``name#2`` for the second of that name.

    A stand-in has the name of the part that it ``stands_for``.
    """
    by_label: dict[str, P] = {}
    for part in parts:
        kind = type(getattr(part, "stands_for", part))
        name = vars(kind).get("expression_name") or kind.__name__
        count = sum(label.partition("#")[0] == name for label in by_label)
        by_label[name if not count else f"{name}#{count + 1}"] = part
    return by_label


def register(kind: str, name: str) -> Callable[[T], T]:
    """Give a part its kind and its name in expressions. The second use of a name is an error."""

    def enter(part: T) -> T:
        if name in REGISTRY.setdefault(kind, {}):
            raise ExpressionError(f"the {kind} {name!r} is registered twice", remedy="choose another name")
        REGISTRY[kind][name] = part  # type: ignore[assignment]
        if isinstance(part, type) and issubclass(part, Part):
            part.expression_name = name
        return part

    return enter


def check_kind(value: object, kind: str, where: str, name: str | None = None) -> None:
    """Refuse a literal, a class, and a part that is registered, but not as this kind; one's own may be of any.

    ``name`` is that of the setting, where it is not that of the kind.
    """
    kinds = [other for other, by_name in REGISTRY.items() if type(value) in by_name.values()]
    literal = isinstance(value, str | int | float | tuple | list | dict | type | None)
    if (kinds and kind not in kinds) or literal:
        what = f"{name or kind} must be a {kind}, got {brief(repr(value))}"
        guards.refuse(DomainError(what, where=where, remedy=f"see `leakgauge list {kind}`"))


def format_value(value: Any) -> str:
    """A value as it stands in an expression."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {format_value(v)}" for k, v in value.items()) + "}"
    if _is_array(value):
        return _digest_of(value) if value.shape else format_value(value.item())
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"  # the literal that reads back as infinity
    if isinstance(value, tuple):
        inner = ", ".join(map(format_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _is_array(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("dtype", "shape", "tolist"))


def _digest_of(array: Any) -> str:
    """Many numbers in one word, which differs where any of them does: their own text leaves most of them out."""
    digest = hashlib.sha256(f"{array.dtype} {array.tolist()!r}".encode()).hexdigest()[:12]
    return f"<{'x'.join(map(str, array.shape))} numbers, {digest}>"


def described(value: object) -> str:
    """The one text of a value: its expression, or the path of an object whose ``repr`` is only an address."""
    text = repr(value)
    if " at 0x" not in text:
        return text
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if _is_array(value):
        return False
    if field.default is not dataclasses.MISSING:
        return bool(type(field.default) is type(value) and field.default == value)
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
        return bool(type(default) is type(value) and default == value)
    return False


def names(kind: str | tuple[str, ...] | None = None) -> dict[str, Callable[..., Any]]:
    """The registered parts of one kind, of some, or of all; entry points included."""
    kinds = [kind] if isinstance(kind, str) else list(kind or REGISTRY)
    parts = {name: part for k in kinds for name, part in REGISTRY.get(k, {}).items()}
    for name, entry in plugins().items():
        if name not in parts:
            parts[name] = entry.load()
    return parts


@cache
def plugins() -> dict[str, EntryPoint]:
    """The parts that installed packages offer, by name; nothing of theirs is imported here."""
    return {entry.name: entry for entry in entry_points(group="leakgauge.parts")}
