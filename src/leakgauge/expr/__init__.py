"""Expressions: one textual form for every part, the same in Python, TOML, CLI and reports.

``clip(norm=1.0) | gaussian(std=0.1)``, ``1e-4*tv() + 0.1*pixel_range()``. ``repr`` prints them,
:func:`parse` reads them with :mod:`ast`: names come from the registry, the rest is literals and the
operators ``|``, ``+``, ``*``; nothing is evaluated. A stranger's part is
``my_package.module:Object(…)``, or an entry point in the group ``leakgauge.parts``.
"""

from leakgauge.expr.parts import REGISTRY, Part, check_kind, described, format_value, labelled, names, plugins, register
from leakgauge.expr.paths import PATH
from leakgauge.expr.reading import Reading, load, parse, read

__all__ = [
    "PATH",
    "REGISTRY",
    "Part",
    "Reading",
    "check_kind",
    "described",
    "format_value",
    "labelled",
    "load",
    "names",
    "parse",
    "plugins",
    "read",
    "register",
]
