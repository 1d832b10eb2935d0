"""The red team in the box: planted leaks and drowned clients, and what is said of each."""

from __future__ import annotations

import json
import warnings
from typing import Any

from scipy import stats

from evidence import Context, Measurement, Number, at_least, check, exactly
from leakgauge.intervals import clopper_pearson
from leakgauge.testing.red_team import WORTHS, answered, every

LEVEL = 0.05
"""The significance of a verdict by default; that of ``inspect`` is stricter."""


@check("red_team", rows="red-team", cost="long", uses=("leakgauge.cli",))
def red_team(context: Context) -> Measurement:
    """Every case of ``leakgauge.testing.red_team``; wrong alarms against the binomial law at the level of a verdict."""
    cases, table = every(), []
    for place, case in enumerate(cases, 1):
        path = context.scratch / f"{place}.json"
        if not path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = answered(case)
            row: dict[str, Any] = {"case": case.name, "truth": "leaks" if case.leaks else "safe"}
            row |= {"answer": answer.word.splitlines()[-1], "worth": answer.worth}
            path.write_text(json.dumps(row), encoding="utf-8")
        table.append(json.loads(path.read_text(encoding="utf-8")))
        context.say(f"{place} of {len(cases)}: {case.name}: {table[-1]['answer']} ({table[-1]['worth']})")
    counts = {name: sum(row["worth"] == name for row in table) for name in WORTHS}
    safe, alarms = sum(not case.leaks for case in cases), counts["wrong-alarm"]
    chance = float(stats.binom.sf(alarms - 1, safe, LEVEL))
    low, high = clopper_pearson(alarms, safe)
    return Measurement(
        {
            "cases": Number(len(cases), at_least(60)),
            "right": Number(counts["right"]),
            "wrong-safe": Number(counts["wrong-safe"], exactly(0)),
            "crashes": Number(counts["crash"], exactly(0)),
            "unclear": Number(counts["unclear"]),
            "wrong alarms": Number(alarms),
            "chance of as many wrong alarms at the level": Number(chance, at_least(0.01)),
        },
        detail=f"{safe} of the cases cannot leak; wrong alarms {alarms / safe:.1%} [{low:.1%}, {high:.1%}], "
        f"level {LEVEL:.0%}; the answers that are not right are in the table",
        table=[row for row in table if row["worth"] != "right"],
    )
