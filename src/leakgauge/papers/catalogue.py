"""Every table: whatever module here, or in a paper's folder, has ``TABLES``. A new file is a new reproduction."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from leakgauge.errors import ExpressionError, LeakgaugeError, nearest
from leakgauge.expr import PATH, load
from leakgauge.papers.contract import Table

FIRST = ("bayes", "gradattack", "capacity", "lrp", "beyond")
"""What the page begins with; other papers follow by name."""


def tables() -> dict[str, Table]:
    """All tables by name, paper by paper."""
    known: dict[str, Table] = {}
    for modules in _papers():
        here = [table for module in modules for table in getattr(module, "TABLES", ())]
        for table in sorted(here, key=lambda one: one.name):
            if table.name in known:
                raise LeakgaugeError("there are two of this name", where=table.name, remedy="rename one of them")
            known[table.name] = table
    return known


def _papers() -> Iterator[list[ModuleType]]:
    """The modules of every paper: a folder of them, or one file."""
    here = importlib.import_module(__package__ or "")
    others = sorted(m.name for m in pkgutil.iter_modules(here.__path__) if m.name not in FIRST)
    for name in (*FIRST, *others):
        one = importlib.import_module(f"{here.__name__}.{name}")
        inside = pkgutil.iter_modules(getattr(one, "__path__", []))
        yield [one, *(importlib.import_module(f"{one.__name__}.{m.name}") for m in inside)]


def table_of(name: str) -> Table:
    """The table of a name, or somebody's own by ``package.module:NAME``."""
    if PATH.fullmatch(name):
        return _own(name)
    known = tables()
    if name not in known:
        raise ExpressionError("there is no such table", where=name, remedy=nearest(name, known))
    return known[name]


def _own(path: str) -> Table:
    """Somebody's own table; this imports their module."""
    try:
        table = load(path, where="papers run")
    except LeakgaugeError:
        raise
    except Exception as fault:  # whatever their module does when it is imported
        raise ExpressionError(
            f"cannot load {path!r} ({type(fault).__name__}: {fault})", where="papers run", remedy="mend that module"
        ) from fault
    if not isinstance(table, Table):
        raise ExpressionError("is no Table", where=path, remedy="see docs/how-to/add-a-reproduction.md")
    return table
