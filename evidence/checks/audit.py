"""What an audit's words are worth: power, and adversaries that were crippled on purpose."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence import Context, Measurement, Number, at_least, check, exactly
from leakgauge.audit import audit
from leakgauge.metrics import clopper_pearson
from leakgauge.study import Study, of

LEVEL = 0.05
LOUD = ("detectable", "recognisable", "exact")


def _audited(context: Context, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The one defense of a small audit; kept, so that an interrupted check goes on where it was."""
    path = context.scratch / f"{name}.json"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = audit(Study.of(of(dict(raw)), folder), Path(folder) / "run", redact=True).as_json()
        (defense,) = made["checkpoints"][0]["defenses"]
        kept = {"word": defense["attack"]["verdict"], "attack": defense["attack"], "control": defense["control"]}
        kept["best"] = max(record["score"] for record in defense["records"])
        path.write_text(json.dumps(kept))
    read: dict[str, Any] = json.loads(path.read_text())
    return read


@check("power", rows="power", cost="minutes")
def power(context: Context) -> Measurement:
    """Planted leaks ``s·x + (1 − s)·noise`` of falling strength s, in all clients or in one of eight; 10 updates."""
    table, wrong, planted = [], 0, 0
    for leaks in (1.0, 0.125):
        for strength in (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0):
            words: Counter[str] = Counter()
            best = []
            for seed in range(10):
                raw = {
                    "seed": seed,
                    "task": {"model": "mlp(width=16, depth=1)", "records": 10},
                    "defenses": {"planted": f"evidence.planted:Plant(strength={strength}, leaks={leaks})"},
                    "adversaries": {"reader": "analytic()"},
                    "leave_out": ["adaptive"],
                }
                found = _audited(context, f"{leaks}-{strength}-{seed}", raw)
                words[found["word"]] += 1
                best.append(found["best"])
                if found["best"] >= 0.5:  # the leak threshold, reached by construction
                    planted += 1
                    wrong += found["word"] in ("no evidence", "too weak")
            loud = sum(words[word] for word in LOUD)
            low, high = clopper_pearson(loud, 10)
            table.append(
                {
                    "clients that leak": f"{leaks:.0%}",
                    "strength": strength,
                    "best SSIM, mean over audits": round(sum(best) / len(best), 2),
                    "found": f"{loud} of 10 [{low:.2f}, {high:.2f}]",
                    "words": ", ".join(f"{word} {n}" for word, n in sorted(words.items())),
                }
            )
            context.say(str(table[-1]))
    low, high = clopper_pearson(wrong, planted)
    return Measurement(
        {
            "missed at or above recognisable": Number(wrong / planted, exactly(0), (low, high)),
            "audits with such a leak": Number(planted, at_least(50)),
        },
        detail=f"{wrong} of {planted} audits in which a record reaches SSIM 0.5 by construction were called "
        "`no evidence` or `too weak`; the power curve over 200 audits is below",
        table=table,
    )


CRIPPLED = {
    "one iteration": ("inverting_gradients(steps=1)", 4),
    "one iteration, adaptive": ("adaptive(steps=1)", 4),
    "wrong loss": ("evidence.planted:WrongLoss(steps=60)", 6),
    "wrong labels": ("evidence.planted:WrongLabels(steps=60)", 6),
}


@check("positive_control", rows="positive-control", cost="minutes")
def positive_control(context: Context) -> Measurement:
    """20 audits of the Bayes CNN with a crippled adversary, updates drowned in noise; and a healthy one.

    The healthy one models the defense: of others silence is no evidence, however well they work without it.
    """
    table, weak, audits = [], 0, 0
    for name, (text, times) in {**CRIPPLED, "in good health": ("adaptive(steps=60)", 4)}.items():
        words: Counter[str] = Counter()
        beats: list[bool] = []
        for seed in range(times):
            raw = {
                "seed": seed,
                "task": {"model": "bayes_cnn", "records": 8},
                "defenses": {"noisy": "gaussian(std=100.0)"},
                "adversaries": {"it": text},
                "leave_out": ["generic" if "adaptive" in text else "adaptive"],
            }
            found = _audited(context, f"{name}-{seed}", raw)
            words[found["word"]] += 1
            beats.append(found["control"]["p"] <= LEVEL)
        told = {word: words[word] for word in ("too weak", "no evidence", *LOUD)}
        table.append({"adversary": name, **told, "beats its null without a defense": f"{sum(beats)} of {times}"})
        context.say(str(table[-1]))
        if name in CRIPPLED:
            weak, audits = weak + words["too weak"], audits + times
    low, high = clopper_pearson(weak, audits)
    return Measurement(
        {
            "share of crippled adversaries called too weak": Number(weak / audits, exactly(1), (low, high)),
            "crippled adversaries": Number(audits, exactly(20)),
            "healthy adversary called no evidence": Number(words["no evidence"], at_least(1)),
        },
        detail=f"{weak} of {audits} crippled adversaries called `too weak`; the healthy one is not",
        table=table,
    )
