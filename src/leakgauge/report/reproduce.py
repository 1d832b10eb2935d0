"""How to run an audit again: the command, the versions, the seed, the spec."""

from __future__ import annotations

from leakgauge.audit.judge.model import Result
from leakgauge.report.reading import Run
from leakgauge.storage.toml import dump

COMMAND = "leakgauge audit spec.toml --out new-run"


def spec_text(result: Result) -> str:
    """The spec with every default written out; ``result.json`` sorts its keys, so the order of parts is restored."""
    defenses = [defense for _, defense in result.each()]
    order = {"defenses": [d.name for d in defenses], "adversaries": [a.name for d in defenses for a in d.adversaries]}
    spec = dict(result.spec)
    for section, names in order.items():
        parts = spec.get(section)
        if isinstance(parts, dict):
            spec[section] = {n: parts[n] for n in dict.fromkeys([*names, *parts]) if n in parts}
    return dump(spec)


def facts(run: Run) -> list[tuple[str, str]]:
    """What the numbers depend on."""
    result = run.result
    section = result.spec.get("task")
    task = section if isinstance(section, dict) else {}
    listed = [
        ("model", task.get("model")),
        ("data", task.get("data")),
        ("updates audited", task.get("records")),
        ("seed", result.spec.get("seed")),
        *sorted(result.environment.items()),
        # whoever guesses the records can confirm it by their hash
        ("reported records, by hash", None if run.redact else run.manifest().get("reported")),
    ]
    return [(name, str(value)) for name, value in listed if value is not None]
