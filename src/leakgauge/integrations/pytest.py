"""A pytest plugin: keep a privacy regression test beside your other tests.

    def test_our_updates_stay_private(leakgauge_audit):
        leakgauge_audit("privacy.toml", fail_on="recognisable")

The fixture runs the audit (or what is left of it: the run folder lives in pytest's cache, so that an unchanged set-up
costs nothing the second time) and fails with one line per defense that is at or above the gate, or unreliable, or whose
bound an attack exceeded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leakgauge.audit.judge.model import Result
    from leakgauge.audit.judge.words import Word

RunAudit = Callable[..., "Result"]


@pytest.fixture
def leakgauge_audit(request: pytest.FixtureRequest) -> RunAudit:
    """Run an audit and fail the test where its gate fails; returns the result."""

    def run(spec: str | Path, *, fail_on: Word = "recognisable", workers: int = 1) -> Result:
        from leakgauge.audit import audit
        from leakgauge.study import Study

        path = Path(request.config.rootpath) / spec
        study = Study.load(path)
        cache = getattr(request.config, "cache", None)  # none with -p no:cacheprovider
        folder = Path(cache.mkdir("leakgauge")) / path.stem if cache is not None else path.with_name(f"{path.stem}-run")
        result = audit(study, folder, workers=workers)
        bad = [*result.failing(fail_on), *(f"contradiction: {line}" for line in result.contradictions())]
        if bad:
            pytest.fail("\n".join([f"{path.name} fails its gate ({fail_on}):", *bad]), pytrace=False)
        return result

    return run
