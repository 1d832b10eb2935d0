"""A study: from the text of a spec, or from a notebook, to typed values, checked before anything runs.

Names are imported when they are first used: the text of a spec needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from leakgauge.study.spec import Problem, Spec, SpecError, load, of

if TYPE_CHECKING:
    from leakgauge.study.draft import Draft, problems, sound
    from leakgauge.study.study import Study

_HOMES = {"Draft": "draft", "problems": "draft", "sound": "draft", "Study": "study"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"leakgauge.study.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'leakgauge.study' has no attribute {name!r}")


__all__ = ["Draft", "Problem", "Spec", "SpecError", "Study", "load", "of", "problems", "sound"]
