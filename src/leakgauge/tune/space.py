"""A search space: the expression of an attack with ranges in the place of values.

``adaptive(steps=300, tv_weight=log(1e-5, 1e-1))`` has one dimension, ``tv_weight``. Ranges may stand anywhere, also
inside other parts: ``adversary(prior=log(1e-5, 1)*tv(), solver=adam(lr=log(0.01, 1)))``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

from leakgauge.errors import DomainError, ExpressionError, LeakgaugeError, nearest, refuse
from leakgauge.expr.paths import hidden
from leakgauge.tune.ranges import NAMES, Range, range_of, text_of, written

WHERE = "space"
_PLACE = "_range_"
_EXAMPLE = 'write it like "tv_weight = log(1e-5, 1e-1)"'


@dataclass(frozen=True)
class Space:
    """The text of an attack with a place for every range, and the ranges by the names of their arguments."""

    text: str
    ranges: Mapping[str, Range]
    plain: str | None = None
    """The attack without its ranges, where these were given beside it: what a search has to beat."""

    @classmethod
    def of(cls, attack: str, dimensions: Sequence[str] = ()) -> Space:
        """The space of an attack with ranges inside, or with arguments (``tv_weight = log(1e-5, 1e-1)``) beside it."""
        if not isinstance(attack, str):
            what = f"the attack is a {type(attack).__name__}, and no text"
            raise ExpressionError(what, where="attack", remedy='say "adaptive(steps=300)"')
        if not attack.strip():
            raise ExpressionError("there is no attack to tune", where="attack", remedy='say "adaptive(steps=300)"')
        if isinstance(dimensions, str) or not all(isinstance(one, str) for one in dimensions):
            what = f"ranges beside an attack are a list of texts, got {dimensions!r}"
            raise ExpressionError(what, where=WHERE, remedy='say ["tv_weight = log(1e-5, 1e-1)"]')
        text, own = hidden(attack.strip())
        tree = _parsed(text, attack)
        inside = any(isinstance(node, ast.Call) and _name(node) in NAMES for node in ast.walk(tree))
        finder = _Finder()
        for dimension in dimensions:
            finder.tried(partial(_add, tree, dimension, attack))
        tree = finder.visit(tree)
        refuse(finder.faults)
        if not finder.ranges:
            raise ExpressionError(
                f"nothing in {attack!r} is to be searched for", where=WHERE, remedy=f"give a range; {_EXAMPLE}"
            )
        return cls(_restored(ast.unparse(tree), own), finder.ranges, None if inside else attack.strip())

    def at(self, values: Mapping[str, Any]) -> str:
        """The expression of the attack at one point of the space."""
        if unknown := [name for name in values if name not in self.ranges]:
            what, remedy = f"there is no range {unknown[0]!r}", nearest(unknown[0], self.ranges)
            raise DomainError(what, where=WHERE, remedy=remedy)
        if missing := [name for name in self.ranges if name not in values]:
            raise DomainError(f"there is no value for {missing[0]!r}", where=WHERE, remedy="give one for every range")
        return self._filled(text_of(within, within.rounded(values[name])) for name, within in self.ranges.items())

    @property
    def written(self) -> str:
        """The expression with its ranges, as :meth:`of` reads it."""
        return self._filled(map(written, self.ranges.values()))

    def _filled(self, texts: Iterable[str]) -> str:
        listed = list(texts)
        return re.sub(rf"{_PLACE}(\d+)", lambda match: listed[int(match[1])], self.text)

    def size(self, points: int) -> int:
        """How many points :meth:`grid` has, without making them."""
        return prod(within.count(points) for within in self.ranges.values())

    def grid(self, points: int) -> list[dict[str, Any]]:
        """Every combination of ``points`` values of each range; of a choice all options."""
        values = product(*(within.points(points) for within in self.ranges.values()))
        return [dict(zip(self.ranges, point, strict=True)) for point in values]

    def corners(self) -> list[str]:
        """Expressions at the ends of every range, the others at their first: each must be an attack."""
        first = {name: within.points(2)[0] for name, within in self.ranges.items()}
        ends = [first | {name: end} for name, within in self.ranges.items() for end in within.points(2)]
        return list(dict.fromkeys(self.at(values) for values in ends))


def _parsed(text: str, attack: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as fault:
        reason = fault.msg if isinstance(fault, SyntaxError) else str(fault)
        raise ExpressionError(
            f"cannot read {attack!r} ({reason})", where=WHERE, remedy='write it like "adaptive(steps=300)"'
        ) from None


def _add(tree: ast.expr, dimension: str, attack: str) -> None:
    """Give the outermost call of an attack another argument, which must be a range."""
    try:
        (statement,) = ast.parse(dimension.strip()).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"cannot read {dimension!r}", where=WHERE, remedy=_EXAMPLE) from None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value):
            pass
        case _:
            raise ExpressionError(f"{dimension!r} gives no range to one argument", where=WHERE, remedy=_EXAMPLE)
    if _name(value) not in NAMES:
        raise ExpressionError(
            f"{_name(value)!r} in {dimension!r} is no range", where=WHERE, remedy=nearest(_name(value), NAMES)
        )
    if isinstance(tree, ast.Name):
        raise ExpressionError(f"{attack!r} is not called", where=WHERE, remedy=f"write {attack}() with its parentheses")
    if not isinstance(tree, ast.Call):
        raise ExpressionError(
            f"{attack!r} takes no arguments", where=WHERE, remedy="write the range inside the expression"
        )
    if any(keyword.arg == name for keyword in tree.keywords):
        raise ExpressionError(f"{name!r} is given twice", where=WHERE, remedy="give every argument once")
    tree.keywords.append(ast.keyword(arg=name, value=value))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ast.unparse(call.func)


class _Finder(ast.NodeTransformer):
    """Takes every range out of an expression, and leaves a place for its value."""

    def __init__(self) -> None:
        self.ranges: dict[str, Range] = {}
        self.faults: list[LeakgaugeError] = []
        self._path: list[str] = []

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self._path.append(node.arg or "**")
        node.value = self.visit(node.value)
        self._path.pop()
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = _name(node)
        if name not in NAMES:
            self.generic_visit(node)
            return node
        self.tried(partial(self._take, node, name))
        return ast.Name(id=f"{_PLACE}{len(self.ranges) - 1}", ctx=ast.Load())

    def tried(self, step: Callable[[], None]) -> None:
        """Do it; what is wrong is said at the end, with everything else."""
        try:
            step()
        except LeakgaugeError as fault:
            self.faults.append(fault)

    def _take(self, node: ast.Call, name: str) -> None:
        inside = [one for argument in node.args for one in ast.walk(argument) if isinstance(one, ast.Call)]
        if nested := next((one for one in inside if _name(one) in NAMES), None):
            what = f"{ast.unparse(nested)} stands inside {ast.unparse(node)}"
            raise ExpressionError(what, where=WHERE, remedy="a range holds values or parts, and no other range")
        if node.keywords:
            raise ExpressionError(
                f"{ast.unparse(node)} names its arguments",
                where=WHERE,
                remedy=f"write {name}(low, high) or choice(a, b)",
            )
        texts = [ast.unparse(argument) for argument in node.args]
        self.ranges[self._label()] = range_of(name, texts, [_literal(argument) for argument in node.args])

    def _label(self) -> str:
        """``solver.lr``; the second one of a name is ``solver.lr#2``."""
        name = ".".join(self._path) or "value"
        count = sum(label.partition("#")[0] == name for label in self.ranges)
        return name if not count else f"{name}#{count + 1}"


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _restored(text: str, own: Mapping[str, str]) -> str:
    return re.sub(r"_own_\d+", lambda match: own.get(match[0], match[0]), text)


__all__ = ["WHERE", "Space"]
