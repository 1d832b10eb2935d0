"""Audits of defenses that encode records: scored against the record and against what the client trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from leakgauge import metrics
from leakgauge.audit import audit
from leakgauge.audit.plan import comparisons
from leakgauge.observation import encoded
from leakgauge.report import compare, html, junit, markdown, read
from leakgauge.seeds import seed_of
from leakgauge.study import Study, of

SPEC: dict[str, Any] = {
    "task": {"model": "mlp(width=16, depth=1)", "records": 8},
    # shifted by half a width, then equalised: nobody can undo it all
    "defenses": {"moved": "ats(policy='3-9-7')", "mixed": "mixup(k=4)", "noisy": "gaussian(std=0.01)"},
    "adversaries": {"generic": "analytic()", "adaptive": "adaptive(steps=5)"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encodings")
    audit(Study.of(of(SPEC), folder), folder / "run")
    return folder / "run"


def defenses(run: Path) -> dict[str, Any]:
    made = json.loads((run / "result.json").read_text())
    return {d["name"]: d for d in made["checkpoints"][0]["defenses"]}


def test_a_transformed_record_that_was_found_does_not_look_safe(run: Path) -> None:
    moved, mixed_up, noisy = (defenses(run)[name] for name in ("moved", "mixed", "noisy"))
    assert max(r["score"] for r in moved["records"]) < 0.9  # against the record itself nothing is exact
    assert all(r["encoding"]["score"] > 0.99 for r in moved["records"])  # what was trained on is read off
    assert moved["attack"]["verdict"] == "recognisable"
    assert moved["encoding"]["called"] == "transformed record"
    assert moved["encoding"]["recognised"] == 8
    assert mixed_up["attack"]["verdict"] in ("detectable", "recognisable")
    assert mixed_up["encoding"]["recognised"] == 8
    assert noisy["encoding"] is None
    assert {a["encoding"] for a in noisy["adversaries"]} == {None}
    assert comparisons(Study.of(of(SPEC))) == 5


def test_what_was_scored_against_is_what_the_clients_trained_on(run: Path) -> None:
    study = Study.of(of(SPEC), run)
    truth = encoded(study.under(study.defenses["moved"]), study.records, seed=seed_of(0, 0)).inputs
    for row in defenses(run)["moved"]["records"]:
        kept = load_file(run / "cells" / f"{row['encoding']['cell']}.safetensors")
        assert kept["encoded"][row["row"]].equal(truth[row["record"]])
        score = float(metrics.ssim(kept["encodings"][row["row"]], truth[row["record"]]))
        assert row["encoding"]["score"] == pytest.approx(score, abs=1e-4)


def test_every_report_shows_both_scores(run: Path) -> None:
    page, text, cases = html(read(run)), markdown(read(run)), junit(read(run))
    assert "transformed records recognisable" in page
    assert page.count('what the client trained on"') == 6  # three exhibits of two defenses
    assert "Scored against what the client trained on" in text
    assert "transformed records recognised: 8 of 8" in cases
    assert "Encodings" in compare(read(run), read(run)).tables()
    redacted = html(read(run, redact=True))
    assert "data:image" not in redacted


def test_what_an_adversary_had_to_assume_stands_in_the_ledger(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    raw = {**SPEC, "defenses": {"hidden": "prune(p=0.5) | gaussian(std=0.01)"}}
    made = audit(Study.of(of(raw), tmp_path), tmp_path / "run").as_json()
    lines = [line["assumes"] for line in made["ledger"] if line["number"] == "adaptive against hidden"]
    assumed = "adaptive() assumes random_prune(p=0.5) | gaussian(std=0.01): the threshold of prune(p=0.5)"
    assert sum(line.startswith(assumed) for line in lines) == 1
    assert any(line.startswith("prune.threshold: ") for line in lines)  # what was done about it
    assert not [one for one in recwarn if "adaptive()" in str(one.message)]  # said once, where it belongs
