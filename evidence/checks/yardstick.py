"""The yardstick and a user's own search: rows with intervals and commands, and searches that see no reported record."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import leakgauge as lg
from evidence import Context, Measurement, Number, at_least, at_most, check, exactly
from leakgauge.standings import Row, clients, page, planned, run
from leakgauge.standings.set_ups import SIZES
from leakgauge.study import Study
from leakgauge.tune import Space, tune

OWN = """\
from dataclasses import dataclass
from leakgauge.defenses import Release, UpdatePart

@dataclass(frozen=True)
class Shrink(UpdatePart):
    share: float = 0.5

    def release(self, update, context, *, generator):
        return Release({name: self.share * value for name, value in update.items()})
"""


@check("standings_own_row", rows="standings", cost="minutes", uses=("leakgauge.cli",))
def own_row() -> Measurement:
    """A defense in a package of its own, measured by one command in another process; and the page that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "elsewhere.py").write_text(OWN, encoding="utf-8")
        command = ["standings", "--quick", "--defense", "elsewhere:Shrink()", "--own-code", "--out", "out"]
        done = subprocess.run([sys.executable, "-m", "leakgauge", *command], cwd=home, check=False, capture_output=True)
        rows = json.loads((home / "out" / "standings.json").read_text())["rows"] if not done.returncode else []
        text = (home / "out" / "standings.md").read_text() if rows else ""
    scored = [row for row in rows if row["fault"] is None]
    return Measurement(
        {
            "exit code": Number(done.returncode, exactly(0)),
            "rows of the defense": Number(len(scored), exactly(len(SIZES["quick"].attacks))),
            "of them on the page with a command": Number(
                sum("elsewhere:Shrink()" in line and "leakgauge standings" in line for line in text.splitlines()),
                at_least(len(scored)),
            ),
        },
        detail=f"leakgauge {' '.join(command)}",
    )


@check("standings_page", rows="standings", cost="long")
def whole_page(context: Context) -> Measurement:
    """All rows of the full standings on this machine, resumed where it was interrupted: intervals, commands, time."""
    size = SIZES["full"]
    rows = [Row(client, size, defense, attack) for client, defense, attack in planned(size, clients(size))]
    scores = run(rows, context.scratch / "standings", report=lambda done, total, _: context.say(f"{done} of {total}"))
    measured = [score for score in scores if not score.fault]
    text = page(scores)
    (context.scratch / "standings.md").write_text(text, encoding="utf-8")
    bounded = sum(score.interval.low <= score.interval.mean <= score.interval.high for score in measured)
    seconds = sum(score.seconds for score in scores)
    return Measurement(
        {
            "rows": Number(len(measured)),
            "rows that do not apply": Number(len(scores) - len(measured)),
            "rows without an interval": Number(len(measured) - bounded, exactly(0)),
            "lines with a command": Number(text.count("<code>leakgauge standings"), exactly(len(measured))),
            "processor hours": Number(seconds / 3600, at_most(4.0)),
        },
        detail=f"{len(clients(size))} clients, {size.updates} updates each, one process; two hours on two cores are "
        "four processor hours",
    )


@check("tune_blind", rows="tune", cost="minutes")
def tune_is_blind() -> Measurement:
    """A search with the reported records replaced by others: its trials and its answer, byte by byte."""
    dataset = lg.data.load("fashion_mnist_sample")
    reference = dataset.sample(60, seed=0, split="train")
    space = Space.of("adaptive(steps=60)", ["tv_weight = log(1e-5, 1e-1)"])
    trials, gains = [], []
    for seed in (1, 2):
        records = dataset.sample(8, seed=seed, split="test")
        study = Study("dlg_lenet", records, reference=reference, updates=8)
        with tempfile.TemporaryDirectory() as folder:
            answer = tune(study, space, folder, trials=12, updates=4)["none"]
            cells = sorted((path.name, path.read_bytes()) for path in (Path(folder) / "cells").glob("*.json"))
            trials.append((cells, (Path(folder) / "tune.json").read_bytes()))
        assert answer.plain is not None
        gains.append((answer.best.score or 0.0) - (answer.plain.score or 0.0))
    return Measurement(
        {
            "searches that differ": Number(float(trials[0] != trials[1]), exactly(0)),
            "trials": Number(len(trials[0][0]), exactly(13)),
            "gain in SSIM on the records searched on": Number(gains[0], at_least(0.0)),
        },
        detail="sigmoid LeNet, 12 settings by TPE on 4 updates of Fashion-MNIST train records",
    )
