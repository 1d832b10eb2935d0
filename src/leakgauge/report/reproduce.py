"""How to run an audit again: the command, the versions, the seed, the spec."""

from __future__ import annotations

from leakgauge.report.reading import Run
from leakgauge.report.schema import Result
from leakgauge.storage.toml import dump

COMMAND = "leakgauge audit spec.toml --out new-run"


def spec_text(result: Result) -> str:
    """The spec with every default written out; ``result.json`` sorts its keys, so the order of parts is restored."""
    defenses = [d for c in result.checkpoints for d in c.defenses]
    order = {"defenses": [d.name for d in defenses], "adversaries": [a.name for d in defenses for a in d.adversaries]}
    spec = dict(result.spec)
    for section, names in order.items():
        given = spec.get(section)
        if isinstance(given, dict):
            spec[section] = {n: given[n] for n in dict.fromkeys([*names, *given]) if n in given}
    return dump(spec)


def facts(run: Run) -> list[tuple[str, str]]:
    """What the numbers depend on."""
    result = run.result
    given = result.spec.get("task")
    task = given if isinstance(given, dict) else {}
    seen = [
        ("model", task.get("model")),
        ("data", task.get("data")),
        ("updates audited", task.get("records")),
        ("seed", result.spec.get("seed")),
        *sorted(result.environment.items()),
        # whoever guesses the records can confirm it by their hash
        ("reported records, by hash", None if run.redact else run.manifest().get("reported")),
    ]
    return [(name, str(value)) for name, value in seen if value is not None]
