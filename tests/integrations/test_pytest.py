"""The pytest plugin: a fixture that runs an audit and fails where its gate does."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakgauge.audit.judge.model import Result
from leakgauge.integrations.pytest import RunAudit

SPEC = """
[task]
model = "mlp(width=16, depth=1)"
records = 7
[defenses]
shipped = "{defense}"
[adversaries]
linear = "analytic()"
adaptive = "adaptive(steps=5)"
"""


def test_the_fixture_returns_the_result_or_fails_with_a_line_per_defense(
    leakgauge_audit: RunAudit, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request.config, "cache", None, raising=False)  # the run folder stands beside the spec then
    (tmp_path / "safe.toml").write_text(SPEC.format(defense="clip(norm=1.0) | gaussian(std=3.0)"))
    result: Result = leakgauge_audit(tmp_path / "safe.toml")
    assert set(result.verdicts.values()) == {"no evidence"}
    assert (tmp_path / "safe-run" / "result.json").is_file()
    (tmp_path / "bare.toml").write_text(SPEC.format(defense="identity()"))
    with pytest.raises(pytest.fail.Exception, match=r"bare\.toml fails its gate \(recognisable\):\nshipped: exact"):
        leakgauge_audit(tmp_path / "bare.toml")
