"""``leakgauge list``: every part, its arguments and what it does."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Optional

import typer

from leakgauge import expr
from leakgauge.cli.tables import table
from leakgauge.errors import ExpressionError, nearest

ROOMS = ("defenses", "priors", "metrics", "adversary", "attacks", "models", "fl", "claims")
STRANGERS = "entry point"


def show(
    kind: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
        typer.Argument(help="A kind of part: defense, prior, attack, model …; default: all."),
    ] = None,
) -> None:
    """List every part that an expression may name, with its arguments.

    \b
    Examples:
      leakgauge list
      leakgauge list attack

    Parts of your own packages are listed if they are entry points in the group leakgauge.parts; these are imported.
    """
    kinds = parts()
    if kind is not None and kind not in kinds:
        raise ExpressionError(f"unknown kind {kind!r}", where="list", remedy=nearest(kind, kinds))
    rows = [
        (one, signature(name, part), summary(part))
        for one in ([kind] if kind else sorted(kinds))
        for name, part in sorted(kinds[one].items())
    ]
    table(("kind", "write it as", "what it is"), rows)


def parts() -> dict[str, dict[str, Callable[..., Any]]]:
    """kind → name → class or function of the part; importing a package registers its parts."""
    for room in ROOMS:
        importlib.import_module(f"leakgauge.{room}")
    kinds = {kind: dict(registered) for kind, registered in expr.REGISTRY.items()}
    ours = {name for registered in kinds.values() for name in registered}
    others = {name: registered for name, registered in expr.names().items() if name not in ours}
    return kinds | ({STRANGERS: others} if others else {})


def signature(name: str, part: Callable[..., Any]) -> str:
    """``clip(norm)``, ``mlp(width=500, depth=5)``: arguments with defaults show them."""
    factories = {
        field.name: field.default_factory()
        for field in (dataclasses.fields(part) if dataclasses.is_dataclass(part) else ())
        if field.default_factory is not dataclasses.MISSING
    }
    arguments = [
        p.name if p.default is p.empty else f"{p.name}={expr.format_value(factories.get(p.name, p.default))}"
        for p in inspect.signature(part).parameters.values()
    ]
    return f"{name}({', '.join(arguments)})"


def summary(part: Callable[..., Any]) -> str:
    """The first line of the docstring, without its mark-up."""
    first = (inspect.getdoc(part) or "").partition("\n")[0]
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", first).replace("``", "")
