"""One audit, from a study to its result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from leakgauge.audit.engines import Engine, InProcess, LocalPool
from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.result import result
from leakgauge.audit.possible import refuse_impossible
from leakgauge.audit.run import Outcome, Report, execute
from leakgauge.audit.store import Store, StoreError, canonical, write
from leakgauge.doctor.diagnosis import Diagnosis, examine
from leakgauge.errors import LeakgaugeError, brief
from leakgauge.study.study import Study
from leakgauge.threads import one_thread


def audit(
    study: Study,
    out: Path | str | None = None,
    *,
    workers: int = 1,
    engine: Engine | None = None,
    report: Report | None = None,
    redact: bool = False,
    ablate: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Result:
    """Run an audit, or what is left of it, and write ``result.json``; the same call resumes.

    ``out`` is the run folder; without one nothing stays on disk. ``engine`` runs the cells; by default this process, or
    a pool of ``workers`` processes. ``redact`` keeps neither originals nor reconstructions, nor labels in the result,
    and numbers the records in an order that does not follow from the seed; ``ablate`` also attacks without each grant
    in turn. ``warn`` hears at once what spoils every verdict; a set-up that does not replay is not attacked. Torch has
    as many threads afterwards as before.
    """
    if not isinstance(study, Study):
        raise LeakgaugeError(
            f"the study is of type {type(study).__name__}",
            where="audit",
            remedy="give a Study: Study(model, records, …), Study.load('spec.toml') or Study.of(spec, folder)",
        )
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return audit(
                study, folder, workers=workers, engine=engine, report=report, redact=redact, ablate=ablate, warn=warn
            )
    engine = engine or (InProcess() if workers == 1 else LocalPool(workers))
    with one_thread():
        return _audit(study, Path(out), engine, report, warn, redact=redact, ablate=ablate)


def _audit(
    study: Study,
    out: Path,
    engine: Engine,
    report: Report | None,
    warn: Callable[[str], None] | None,
    *,
    redact: bool,
    ablate: bool,
) -> Result:
    if redact:
        study = study.in_private_order()
    diagnosis = None
    if study.spec.task.replay:
        diagnosis = examine(
            study.spec, study.home, model=study.module, loss=study.task.recipe.loss, defenses=study.defenses
        )
    valid = diagnosis is None or diagnosis.status == "replays"
    if diagnosis is not None and not valid and warn is not None:
        warn(f"every verdict is `invalid`: this set-up is not your client's; nothing is attacked. {diagnosis.sentence}")
    if valid:
        refuse_impossible(study)
    outcome = execute(study, out, engine=engine, report=report, redact=redact, ablate=ablate, attack=valid)
    store = Store(out)
    answer = _judged(study, outcome, store, diagnosis)
    if redact:
        answer = answer.redacted()
    answer.save(out)
    write(out / "timings.json", canonical(store.timings()).encode())
    return answer


def _judged(study: Study, outcome: Outcome, store: Store, diagnosis: Diagnosis | None) -> Result:
    """The result. A cell that was there before may be anybody's: one that says something else is named as the cause."""
    try:
        return result(study, outcome, store, diagnosis)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as fault:
        if not outcome.resumed:
            raise
        reason = brief(" ".join(f"{type(fault).__name__}: {fault}".split()))
        raise StoreError(
            f"no result follows from these cells ({reason})",
            where=str(store.folder / "cells"),
            remedy="delete them; the same command computes them again",
        ) from fault
