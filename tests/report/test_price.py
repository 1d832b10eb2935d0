"""The price of one record: from times that were measured, by the paper's model where records are mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from leakgauge.cli import app
from leakgauge.papers.gradattack.table_3 import Costs
from leakgauge.report import html, markdown, read
from leakgauge.report.advice import advice
from leakgauge.report.price import bills, duration, explained, one_record
from tests.report.samples import N, defense, frame, make, parts

HOURS = 3600.0


def timed(folder: Path, expression: str = "clip(norm=1.0) | gaussian(std=0.1)", **spec: Any) -> Path:
    """A run at step 10 whose attacks took 6 s (generic) and 4 s (adaptive) for five updates, trainings 8 s and 2 s."""
    adversaries = [
        {"name": "generic", "expression": "inverting_gradients()", "mean": 0.2},
        {"name": "adaptive", "expression": "adaptive(steps=9)", "mean": 0.6},
    ]
    made = {**defense("own", "recognisable"), **parts(expression), "adversaries": adversaries, "accuracy": 0.8}
    made["attack"] = {**made["attack"], "recognised": 2}
    made["accuracies"] = [0.8, 0.7]
    whole = frame(["own"])
    make(
        folder,
        checkpoints=[{"step": 10, "accuracy": 0.9, "defenses": [made]}],
        spec={**whole["spec"], **spec},
    )
    attack = {"step": 10, "defense": expression, "records": [0, N]}
    plan = [
        {"id": "a1", "kind": "attack", "params": {**attack, "arm": "real", "adversary": "inverting_gradients()"}},
        {"id": "a2", "kind": "attack", "params": {**attack, "arm": "real", "adversary": ["x", "adaptive(steps=9)"]}},
        {"id": "a3", "kind": "attack", "params": {**attack, "arm": "noise", "adversary": "inverting_gradients()"}},
        {"id": "t1", "kind": "train", "params": {"defense": expression, "seed": 0}},
        {"id": "t0", "kind": "train", "params": {"defense": "identity()", "seed": 0}},
    ]
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "timings.json").write_text(json.dumps({"a1": 6.0, "a2": 4.0, "a3": 99.0, "t1": 8.0, "t0": 2.0}))
    return folder


def test_the_strongest_adversary_is_timed_and_every_attempt_is_paid_for(tmp_path: Path) -> None:
    (bill,) = bills(read(timed(tmp_path / "run")))
    assert bill.adversary == "adaptive"
    assert bill.attack == pytest.approx(4 / 5)
    assert bill.recovered == pytest.approx((6 + 4) / 2)
    assert bill.training == pytest.approx(4.0)
    assert not bill.mixes


def test_a_mixed_record_costs_the_whole_data_set(tmp_path: Path) -> None:
    run = read(timed(tmp_path / "run", "instahide(k=4) | prune(p=0.9)", price={"records": 700, "epochs": 20}))
    (bill,) = bills(run)
    own = Costs(attack=0.8 / HOURS, batch=1, epochs=20)
    assert bill.mixed == {700: own.mixed(700)}
    assert bills(run, records=50)[0].mixed == {50: own.mixed(50)}
    total, paper = own.mixed(700), duration(HOURS * (10 + own.mixed(700).solving))
    assert one_record(bill) == (
        f"{duration(HOURS * total.total)} ({paper} of them the paper's, of a GPU) if a client holds 700"
    )
    assert "GPU hours of the paper" in explained([bill])
    assert any("Keep secret which records own mixes" in line for line in advice(run.result, [bill]))


def test_mixup_costs_the_inversions_of_three_rounds_and_no_secret_is_worth_keeping(tmp_path: Path) -> None:
    run = read(timed(tmp_path / "run", "mixup(k=4) | prune(p=0.9)", price={"records": 700, "epochs": 20}))
    (bill,) = bills(run)
    assert bill.mixed[700].total == pytest.approx(3 * 700 * 0.8 / HOURS)
    assert one_record(bill) == "28.0 min if a client holds 700"
    assert bills(run, epochs=1)[0].mixed == bill.mixed
    assert "GPU" not in explained([bill])
    assert not any("secret" in line for line in advice(run.result, [bill]))


@pytest.mark.parametrize("mixing", ["mixup(k=4)", "instahide(k=4)"])
def test_mixtures_that_nobody_recognised_have_no_price(tmp_path: Path, mixing: str) -> None:
    folder = timed(tmp_path / "run", mixing)
    whole = json.loads((folder / "result.json").read_text())
    made = whole["checkpoints"][0]["defenses"][0]
    excess = made["attack"]["excess"]
    for recognised in (3, 0):
        made["encoding"] = {"called": "mixture", "recognised": recognised, "records": N, "mean": 0.1, "best": 0.2}
        made["encoding"] |= {"lone": False, "p": 0.5, "excess": excess}
        (folder / "result.json").write_text(json.dumps(whole))
        assert bills(read(folder))[0].mixes == bool(recognised)


def test_reports_and_the_command_show_it(tmp_path: Path) -> None:
    folder = timed(tmp_path / "run")
    text = markdown(read(folder))
    assert "| own | 75 % (70 to 80) | × 4.00 | adaptive | 0.8 s | 5.0 s |" in text
    page = html(read(folder))
    assert "one record, end to end" in page
    assert "× 4.00" in page
    said = CliRunner().invoke(app, ["price", str(folder)])
    assert said.exit_code == 0
    assert "5.0 s" in said.output


def test_a_run_without_times_has_no_price(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    assert bills(read(folder)) == []
    assert "Utility and price" not in html(read(folder))
    said = CliRunner().invoke(app, ["price", str(folder)])
    assert said.exit_code == 2
    assert "no attack of this run was timed" in said.output


@pytest.mark.parametrize("wrong", ["[]", "{", '{"a1": "x", "a2": -1}', '[{"id": "a1", "kind": 3, "params": []}]'])
@pytest.mark.parametrize("name", ["plan.json", "timings.json"])
def test_files_that_anybody_wrote_never_break_a_report(tmp_path: Path, name: str, wrong: str) -> None:
    folder = timed(tmp_path / "run", price={"records": "many", "epochs": -1})
    (folder / name).write_text(wrong)
    assert "own" in html(read(folder))


def test_counts_beyond_any_float_never_break_a_report(tmp_path: Path) -> None:
    folder = timed(tmp_path / "run", price={"records": 10**400, "epochs": 10**400})
    plan = (folder / "plan.json").read_text().replace(f"[0, {N}]", f"[0, {10**400}]")
    (folder / "plan.json").write_text(plan)
    assert bills(read(folder)) == []
    assert "own" in html(read(folder))


def test_durations_read_well() -> None:
    assert [duration(s) for s in (0.31, 5, 120, 7200, 934.48 * HOURS, 46_579.01 * HOURS)] == [
        "0.31 s",
        "5.0 s",
        "2.0 min",
        "2.0 h",
        "934 h",
        "5.3 years",
    ]
