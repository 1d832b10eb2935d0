"""The audit: from a spec to evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from leakgauge.audit.judge.result import redacted, result
from leakgauge.audit.prepare import prepare
from leakgauge.audit.run import Event, Report, execute
from leakgauge.audit.store import Store, canonical, write
from leakgauge.doctor.diagnosis import examine
from leakgauge.study.spec import Problem, Spec, SpecError, load

__all__ = ["Event", "Problem", "Report", "Spec", "SpecError", "audit", "load"]


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
) -> dict[str, Any]:
    """Run an audit, or what is left of it, and write ``result.json``; the same command resumes.

    Relative paths of the spec start at ``home``. ``redact`` keeps neither originals nor reconstructions, nor labels in
    the result; ``ablate`` also attacks without each grant in turn. ``warn`` hears at once what spoils every verdict; a
    set-up that does not replay is not attacked.
    """
    diagnosis = examine(spec, home) if spec.task.replay else None
    valid = diagnosis is None or diagnosis.status == "replays"
    if diagnosis is not None and not valid and warn is not None:
        warn(f"every verdict is `invalid`: this set-up is not your client's; nothing is attacked. {diagnosis.sentence}")
    outcome = execute(spec, home, out, workers=workers, report=report, redact=redact, ablate=ablate, attack=valid)
    store = Store(out)
    made = result(spec, prepare(spec, home), outcome, store, diagnosis)
    if redact:
        made = redacted(made)
    write(out / "result.json", canonical(made).encode())
    write(out / "timings.json", canonical(store.timings()).encode())
    return made
