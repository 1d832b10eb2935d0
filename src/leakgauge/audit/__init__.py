"""The audit: from a study to evidence. ``leakgauge.audit(study)`` runs one; see ``help(leakgauge.audit.audit)``.

Its parts are imported when they are first used: reading a result needs no torch.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakgauge.audit.auditing import audit
    from leakgauge.audit.engines import Engine, InProcess, LocalPool, RayCluster, SharedFolder
    from leakgauge.audit.judge.model import Result
    from leakgauge.audit.run import Event, Report
    from leakgauge.study.spec import Problem, Spec, SpecError, load
    from leakgauge.study.study import Study

__all__ = [
    "Engine",
    "Event",
    "InProcess",
    "LocalPool",
    "Problem",
    "RayCluster",
    "Report",
    "Result",
    "SharedFolder",
    "Spec",
    "SpecError",
    "Study",
    "audit",
    "load",
]
_HOMES = {
    "Engine": "leakgauge.audit.engines",
    "Event": "leakgauge.audit.run",
    "InProcess": "leakgauge.audit.engines",
    "LocalPool": "leakgauge.audit.engines",
    "Problem": "leakgauge.study.spec",
    "RayCluster": "leakgauge.audit.engines",
    "Report": "leakgauge.audit.run",
    "Result": "leakgauge.audit.judge.model",
    "SharedFolder": "leakgauge.audit.engines",
    "Spec": "leakgauge.study.spec",
    "SpecError": "leakgauge.study.spec",
    "Study": "leakgauge.study.study",
    "audit": "leakgauge.audit.auditing",
    "load": "leakgauge.study.spec",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'leakgauge.audit' has no attribute {name!r}")


class _Room(ModuleType):
    """This package, which can be called: ``leakgauge.audit(study)`` runs an audit."""

    def __call__(self, study: Study, out: Path | str | None = None, **options: Any) -> Result:
        """Run an audit: see :func:`leakgauge.audit.auditing.audit`."""
        from leakgauge.audit.auditing import audit

        return audit(study, out, **options)


sys.modules[__name__].__class__ = _Room
