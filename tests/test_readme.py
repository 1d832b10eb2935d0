"""The README: its ten lines run, early on the page, and reconstruct; what it says is in the box is in the box."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import leakgauge as lg
from leakgauge.cli.listing import parts
from leakgauge.defenses import of_stage

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
KINDS = {
    "attacks": "attack",
    "likelihoods": "likelihood",
    "priors": "prior",
    "solvers": "solver",
    "networks": "model",
}


def test_the_ten_lines_stand_early_and_reconstruct() -> None:
    found = BLOCK.search(README)
    assert found is not None
    assert README[: found.end()].count("\n") <= 31
    assert len([line for line in found[1].splitlines() if line.strip()]) <= 10
    space: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(found[1], "README.md", "exec"), space)
    assert printed.getvalue().startswith("tensor([")
    guess, records = space["guess"], space["records"]
    assert isinstance(guess, lg.Reconstruction)
    assert isinstance(records, lg.Records)
    # the README promises images that one can recognise; a blind guess reaches about 11 dB
    assert bool((lg.metrics.psnr(guess.inputs[:, 0], records.inputs) > 20).all())
    assert guess.labels[:, 0].tolist() == records.labels.tolist()


def test_the_box_holds_what_is_registered() -> None:
    registered = parts()
    stages = {"defenses": of_stage("update"), "earlier stages": of_stage("input", "model", "training")}
    for row, made_by in [*((row, registered[kind]) for row, kind in KINDS.items()), *stages.items()]:
        line = next(line for line in README.splitlines() if line.startswith(f"| {row} |"))
        ours = {name for name, made in made_by.items() if made.__module__.startswith("leakgauge.")}
        assert set(re.findall(r"`(\w+)`", line)) == ours, f"the row {row!r} of the README's table"
