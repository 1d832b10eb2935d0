"""Docstrings as Markdown: roles such as ``:class:`~leakgauge.types.Candidate``` become plain code."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


class Roles(griffe.Extension):
    """Rewrite every docstring once it has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
