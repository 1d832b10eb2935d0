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
from typing import Any

import pytest

RunAudit = Callable[..., dict[str, Any]]


@pytest.fixture
def leakgauge_audit(request: pytest.FixtureRequest) -> RunAudit:
    """Run an audit and fail the test where its gate fails; returns the result."""

    def run(spec: str | Path, *, fail_on: str = "recognisable", workers: int = 1) -> dict[str, Any]:
        from leakgauge.audit import audit
        from leakgauge.audit.judge.verdict import contradictions, failing
        from leakgauge.study.spec import sound

        path = Path(request.config.rootpath) / spec
        loaded = sound(path)
        cache = request.config.cache
        folder = Path(cache.mkdir("leakgauge")) / path.stem if cache is not None else path.with_name(f"{path.stem}-run")
        made = audit(loaded, path.parent, folder, workers=workers)
        bad = [*failing(made, fail_on), *(f"contradiction: {line}" for line in contradictions(made))]
        if bad:
            pytest.fail("\n".join([f"{path.name} fails its gate ({fail_on}):", *bad]), pytrace=False)
        return made

    return run
