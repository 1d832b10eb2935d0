"""``standard()``: that it is blind to what is reported, and that its controls hold."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_most, check, exactly
from evidence.checks.standard import REPORTED, SET_UPS
from leakgauge.attacks import standard
from leakgauge.audit import audit
from leakgauge.metrics import clopper_pearson
from leakgauge.study import Study, of

LEVEL = 0.05
MODEL = "mlp(width=100, depth=1)"
"""Of the drowned audits: a small one, since noise hides every network alike, and the positive control is read off."""


def _choices(folder: Path) -> dict[str, bytes]:
    cells = [path.read_bytes() for path in sorted((folder / "cells").glob("*.json"))]
    return {json.loads(cell)["params"]["defense"]: cell for cell in cells if json.loads(cell)["kind"] == "tune"}


@check("standard_blind", rows="standard-blind", cost="minutes")
def blind() -> Measurement:
    """The reported records of an audit replaced by others: the cells of the choices, byte by byte."""
    dataset = lg.data.load("fashion_mnist_sample")
    reference = dataset.sample(60, seed=0, split="train")
    chosen, differ = [], []
    for seed in (1, 2):
        records = dataset.sample(8, seed=seed, split="test")
        study = Study(
            "dlg_lenet",
            records,
            reference=reference,
            defenses={"none": "identity()", "noisy": "gaussian(std=0.001)"},
            adversaries={"standard": standard(work="quick")},
            updates=8,
            leave_out=["generic"],
        )
        with tempfile.TemporaryDirectory() as folder:
            audit(study, folder, redact=True)
            chosen.append(_choices(Path(folder)))
        differ.append(records.inputs)
    same = sum(chosen[0][defense] == chosen[1][defense] for defense in chosen[0])
    return Measurement(
        {
            "choices that stay the same to the byte": Number(same, exactly(len(chosen[0]))),
            "records that differ": Number(float((differ[0] != differ[1]).flatten(1).any(1).sum()), exactly(8)),
        },
        detail="sigmoid LeNet, two defenses, 8 reported updates of Fashion-MNIST, 60 reference records",
    )


@check("standard_false_alarms", rows="standard-controls", cost="long")
def false_alarms(context: Context) -> Measurement:
    """200 audits of updates drowned in noise with standard(work="quick"), 8 updates each, level 0.05."""
    words: Counter[str] = Counter()
    for seed in range(200):
        path = context.scratch / f"{seed}.txt"
        if not path.exists():
            raw = {
                "seed": seed,
                "task": {"model": MODEL, "records": 8},
                "defenses": {"drowned": "gaussian(std=100.0)"},
                "adversaries": {"standard": 'standard(work="quick")'},
                "leave_out": ["generic"],
                "verdict": {"significance": LEVEL},
            }
            with tempfile.TemporaryDirectory() as folder:
                result = audit(Study.of(of(raw), folder), Path(folder) / "run", redact=True)
            path.write_text(result.checkpoints[0].defenses[0].attack.verdict)
        words[path.read_text()] += 1
        context.say(f"{seed + 1} of 200: {dict(words)}")
    loud = sum(words[word] for word in ("detectable", "recognisable", "exact"))
    low, high = clopper_pearson(loud, 200)
    return Measurement(
        {
            "share above no evidence": Number(loud / 200, interval=(low, high)),
            "lower end of its interval": Number(low, at_most(LEVEL)),
            "share called no evidence": Number(words["no evidence"] / 200, above(0.5)),
        },
        detail=f"{MODEL} on Fashion-MNIST, noise of std 100; the choice is made anew in each audit; words: "
        f"{dict(sorted(words.items()))}",
    )


@check("standard_control", rows="standard-controls", cost="long")
def control(context: Context) -> Measurement:
    """The positive control of standard(work="quick") in every network, data set and stage of the strength table."""
    bare = list(dict.fromkeys(replace(how, defense="identity()") for how in SET_UPS))
    rows = []
    for how in bare:
        path = context.scratch / f"{how.name.replace(' ', '_')}.json"
        if not path.exists():
            task, dataset = how.task()
            study = Study(
                task.model,
                dataset,
                recipe=task.recipe,
                adversaries={"standard": standard(work="quick")},
                updates=REPORTED,
                leave_out=["generic"],
            )
            defense = audit(study, redact=True).checkpoints[0].defenses[0]
            path.write_text(json.dumps({"set-up": how.name, "verdict": defense.attack.verdict, "p": defense.attack.p}))
        rows.append(json.loads(path.read_text()))
        context.say(str(rows[-1]))
    working = sum(row["p"] is not None and row["p"] <= LEVEL for row in rows)
    return Measurement(
        {"set-ups in which the control works": Number(working, exactly(len(rows)))},
        detail=f"{REPORTED} updates each, without a defense, level {LEVEL}",
        table=rows,
    )
