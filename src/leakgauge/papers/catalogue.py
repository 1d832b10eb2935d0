"""Every table: whatever module of a paper's folder has ``TABLES``. A new file there is a new reproduction."""

from __future__ import annotations

import importlib
import pkgutil

from leakgauge.errors import ExpressionError, LeakgaugeError, nearest
from leakgauge.expr import PATH
from leakgauge.papers.contract import Table

PAPERS = ("bayes", "gradattack", "capacity", "lrp", "beyond", "idlg")


def tables() -> dict[str, Table]:
    """All tables by name, paper by paper."""
    known: dict[str, Table] = {}
    for paper in PAPERS:
        package = importlib.import_module(f"{__package__}.{paper}")
        modules = [
            importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)
        ]
        here = [table for module in modules for table in getattr(module, "TABLES", ())]
        for table in sorted(here, key=lambda one: one.name):
            if table.name in known:
                raise LeakgaugeError("there are two of this name", where=table.name, remedy="rename one of them")
            known[table.name] = table
    return known


def table_of(name: str) -> Table:
    """The table of a name, or somebody's own by ``package.module:NAME``."""
    if PATH.fullmatch(name):
        module, _, attribute = name.partition(":")
        table = getattr(importlib.import_module(module), attribute, None)
        if not isinstance(table, Table):
            raise ExpressionError("is no Table", where=name, remedy="see docs/how-to/add-a-reproduction.md")
        return table
    known = tables()
    if name not in known:
        raise ExpressionError("there is no such table", where=name, remedy=nearest(name, known))
    return known[name]
