"""The audit: from a spec to evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leakgauge.audit.doctor import examine
from leakgauge.audit.prepare import prepare
from leakgauge.audit.result import result
from leakgauge.audit.run import Report, execute
from leakgauge.audit.spec import Problem, Spec, SpecError, load
from leakgauge.audit.store import Store, canonical, write

__all__ = ["Problem", "Report", "Spec", "SpecError", "audit", "load"]


def audit(
    spec: Spec, home: Path, out: Path, *, workers: int = 1, report: Report | None = None, redact: bool = False
) -> dict[str, Any]:
    """Run an audit, or what is left of it, and write ``result.json``; the same command resumes."""
    diagnosis = examine(spec, home) if spec.task.replay else None
    outcome = execute(spec, home, out, workers=workers, report=report, redact=redact)
    made = result(spec, prepare(spec, home), outcome, Store(out), diagnosis)
    write(out / "result.json", canonical(made).encode())
    return made
