"""The audit: from a spec to evidence. Its parts are imported when first used: reading a result needs no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakgauge.audit.judge.model import Result
    from leakgauge.audit.run import Event, Report
    from leakgauge.study.spec import Problem, Spec, SpecError, load

__all__ = ["Event", "Problem", "Report", "Result", "Spec", "SpecError", "audit", "load"]
_HOMES = {
    "Event": "leakgauge.audit.run",
    "Problem": "leakgauge.study.spec",
    "Report": "leakgauge.audit.run",
    "Result": "leakgauge.audit.judge.model",
    "Spec": "leakgauge.study.spec",
    "SpecError": "leakgauge.study.spec",
    "load": "leakgauge.study.spec",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'leakgauge.audit' has no attribute {name!r}")


def audit(
    spec: Spec,
    home: Path,
    out: Path,
    *,
    workers: int = 1,
    report: Report | None = None,
    redact: bool = False,
    ablate: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Result:
    """Run an audit, or what is left of it, and write ``result.json``; the same command resumes.

    Relative paths of the spec start at ``home``. ``redact`` keeps neither originals nor reconstructions, nor labels in
    the result; ``ablate`` also attacks without each grant in turn. ``warn`` hears at once what spoils every verdict; a
    set-up that does not replay is not attacked.
    """
    from leakgauge.audit.judge.result import result
    from leakgauge.audit.prepare import prepare
    from leakgauge.audit.run import execute
    from leakgauge.audit.store import Store, canonical, write
    from leakgauge.doctor.diagnosis import examine

    diagnosis = examine(spec, home) if spec.task.replay else None
    valid = diagnosis is None or diagnosis.status == "replays"
    if diagnosis is not None and not valid and warn is not None:
        warn(f"every verdict is `invalid`: this set-up is not your client's; nothing is attacked. {diagnosis.sentence}")
    outcome = execute(spec, home, out, workers=workers, report=report, redact=redact, ablate=ablate, attack=valid)
    store = Store(out)
    found = result(spec, prepare(spec, home), outcome, store, diagnosis)
    if redact:
        found = found.redacted()
    found.save(out)
    write(out / "timings.json", canonical(store.timings()).encode())
    return found
