"""How to run an audit again: the command, the versions, the seed, the spec."""

from __future__ import annotations

from leakgauge.report.reading import Run
from leakgauge.report.schema import Result
from leakgauge.report.toml import dump

COMMAND = "leakgauge audit spec.toml --out new-run"


def spec_text(result: Result) -> str:
    """The spec with every default written out."""
    return dump(result.spec)


def facts(run: Run) -> list[tuple[str, str]]:
    """What the numbers depend on."""
    result = run.result
    task = result.spec.get("task", {})
    seen = [
        ("model", task.get("model")),
        ("data", task.get("data")),
        ("updates audited", task.get("records")),
        ("seed", result.spec.get("seed")),
        *sorted(result.environment.items()),
        ("reported records, by hash", run.manifest().get("reported")),
    ]
    return [(name, str(value)) for name, value in seen if value is not None]
