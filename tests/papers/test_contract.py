"""The contract: verdicts follow from numbers, finished work is not done again, what fails is said."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from leakgauge.audit.engines import LocalPool
from leakgauge.errors import DomainError
from leakgauge.papers import conventions
from leakgauge.papers.contract import Cell, Measured, Paper, Size, Table, at_least, at_most, difference, near
from leakgauge.papers.judging import judged, shown, state, summary
from leakgauge.papers.recording import is_older, record, recorded, state_of
from leakgauge.papers.running import run
from leakgauge.types import Domain, Records

CALLS: list[str] = []


def measure(name: str, values: list[float]) -> Measured:
    CALLS.append(name)
    if not values:
        raise ValueError("nothing to measure")
    return Measured({name: values}, {name: "a note"}, {name: [(0.0, values[0])]})


def table(**changes: object) -> Table:
    whole = Table(
        "dice/table-1",
        "Table 1: two dice",
        Paper("Somebody, Dice, 1654"),
        (
            Cell("one", near(3.5, 0.5), claim=True),
            Cell("two", at_least(4)),
            Cell("gap", at_most(-1), of=difference("one", "two")),
            Cell("more"),
            Cell("lost", near(1, 0), missing="it was thrown away"),
            Cell("on the side", stand_in=True),
        ),
        {
            "smoke": Size({"a": {"name": "one", "values": [3.0, 3.5]}}, ("one die",)),
            "small": Size({"a": {"name": "one", "values": [3.0, 3.5]}, "b": {"name": "two", "values": [5.0, 5.5]}}),
        },
        measure,
        reasons={"two": "a loaded die"},
    )
    return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]


def words(rows: tuple[object, ...]) -> dict[str, str]:
    return {row.name: row.verdict for row in rows}  # type: ignore[attr-defined]


def test_verdicts_follow_from_the_numbers(tmp_path: Path) -> None:
    small = run(table(), "small", tmp_path)
    expected = {"one": "reproduced", "two": "reproduced", "gap": "reproduced", "more": "not run"}
    assert words(small.rows) == {**expected, "lost": "cannot be run"}
    assert small.row("gap").value == pytest.approx(-2)
    smoke = run(table(), "smoke", tmp_path)
    assert smoke.row("one").verdict == "holds when reduced"
    assert smoke.row("one").why == "one die"
    assert not smoke.row("one").settled  # of two throws the interval is wider than the tolerance
    assert judged(table(), Size({}), {"two": [5.0, 5.1, 5.05]})[1].settled
    assert smoke.row("gap").verdict == "not run"
    assert smoke.holds
    assert smoke.notes == {"one": "a note"}
    assert smoke.curves == {"one": [(0.0, 3.0)]}


def test_a_difference_has_its_reason_and_a_claim_fails() -> None:
    rows = judged(table(), Size({}), {"one": [9.0], "two": [3.0], "on the side": [1.0]})
    assert words(rows)["one"] == words(rows)["two"] == "differs"
    assert next(row for row in rows if row.name == "two").why == "a loaded die"
    assert next(row for row in rows if row.name == "one").why == "no reason is known yet"
    assert words(rows)["on the side"] == "measured"
    assert state(rows) == "differs"
    assert summary(rows).startswith("differs (3 of 6 cells; ")


def test_a_difference_says_whether_its_interval_reaches_what_is_expected() -> None:
    far, wide = (judged(table(), Size({}), {"one": values})[0].why for values in ([9.0, 9.1, 9.05], [1.0, 9.0, 9.0]))
    assert "interval" not in far
    assert wide.endswith("; the interval includes values that meet the bar")


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (4215524.3164, "4,215,524.32"), (1e300, "1e+300")])
def test_large_numbers_are_shown_whole(value: float, text: str) -> None:
    assert shown(value) == text


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    CALLS.clear()
    run(table(), "smoke", tmp_path)
    run(table(), "small", tmp_path)
    run(table(), "small", tmp_path)
    assert CALLS == ["one", "two"]
    only = run(table(), "small", tmp_path / "other", only=["b"])
    assert only.row("one").value is None
    assert only.row("two").value == pytest.approx(5.25)
    with pytest.raises(DomainError, match="no unit 'c'"):
        run(table(), "small", tmp_path, only=["c"])


def test_a_failing_unit_does_not_stop_the_others(tmp_path: Path) -> None:
    work = {"bad": {"name": "one", "values": []}, "good": {"name": "two", "values": [5.0]}}
    outcome = run(table(sizes={"small": Size(work)}), "small", tmp_path)
    assert "nothing to measure" in outcome.faults["bad"]
    assert outcome.row("two").verdict == "reproduced"


def test_workers_measure_the_same(tmp_path: Path) -> None:
    one = run(table(), "small", tmp_path / "one")
    two = run(table(), "small", tmp_path / "two", engine=LocalPool(2))
    assert one.rows == two.rows


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="no dice are left; see `leakgauge papers`"):
        run(table(sizes={}, missing="no dice are left"), "smoke", tmp_path)
    with pytest.raises(DomainError, match="has no scale full; say --scale smoke or small"):
        run(table(), "full", tmp_path)
    assert state_of(table(sizes={}), tmp_path) == "not run (4 of 5 cells; 1 cannot be run)"
    assert state_of(table(missing="dice"), tmp_path) == "cannot be run: dice"


def test_of_several_scales_the_largest_is_recorded(tmp_path: Path) -> None:
    small = run(table(), "small", tmp_path / "run")
    record(small, tmp_path)
    record(run(table(), "smoke", tmp_path / "run"), tmp_path)
    largest = recorded(table(), tmp_path)
    assert largest is not None
    assert largest["scale"] == "small"
    assert largest["command"] == "leakgauge papers run dice/table-1 --scale small"
    assert state_of(table(), tmp_path) == (
        "reproduced (3 of 5 cells, 2 of them not settled; 1 not run, 1 cannot be run), small"
    )
    assert json.loads((tmp_path / "dice-table-1.json").read_text())["rows"][0]["name"] == "one"


def test_a_result_is_older_than_its_code_when_its_units_have_changed(tmp_path: Path) -> None:
    record(run(table(), "small", tmp_path / "run", only=["a"]), tmp_path)
    assert "older" not in state_of(table(), tmp_path)  # unit b is not run, which is another matter
    sizes = {"small": Size({"a": {"name": "one", "values": [3.0, 4.0]}})}
    assert state_of(table(sizes=sizes), tmp_path).endswith(", small, older than its code")
    result = recorded(table(), tmp_path)
    assert result is not None
    del result["units"]  # as recorded before there were any
    assert is_older(table(), result)


def pictured(shade: float) -> Measured:
    return Measured({"one": [shade]}, pictures={"a row": torch.full((9, 1, 4, 6), shade)})


def test_pictures_are_recorded_where_a_table_shows_them(tmp_path: Path) -> None:
    sizes = {"small": Size({"a": {"shade": 0.2}})}
    shown = run(table(sizes=sizes, measure=pictured, grid=True), "small", tmp_path / "run")
    record(shown, tmp_path)
    result = recorded(shown.table, tmp_path)
    assert result is not None
    row = result["pictures"]["a row"]
    assert (row["width"], row["height"]) == (8 * 6, 4)  # eight of the nine, side by side
    image = Image.open(io.BytesIO(base64.b64decode(row["png"])))
    assert set(image.tobytes()) == {51}  # 0.2 of 255
    hidden = run(table(sizes=sizes, measure=pictured), "small", tmp_path / "run")
    assert hidden.pictures == {}


def test_conventions_differ_as_their_formulas_say() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 3, 1, 8, 8, generator=generator, dtype=torch.float64)
    mse = (x - y).square().flatten(1).mean(1)
    ours = -10 * mse.log10()
    assert conventions.signed_psnr(x, y) == pytest.approx(ours - 20 * torch.log10(torch.tensor(2.0)).item(), abs=1e-5)
    assert conventions.signed_mse(x, y) == pytest.approx(4 * mse)
    records = conventions.normalised(Records(y, torch.zeros(3, dtype=torch.long), Domain("image", (1, 8, 8), 2)))
    assert conventions.denormalised(records.inputs) == pytest.approx(y, abs=1e-12)
    guess = (x - conventions.MNIST_MEAN) / conventions.MNIST_STD
    assert conventions.unclipped_psnr(guess, records.inputs) == pytest.approx(ours, abs=1e-9)
    span = y.flatten(1).amax(1) - y.flatten(1).amin(1)
    assert conventions.target_range_psnr(x, y) == pytest.approx(ours + 20 * span.log10(), abs=1e-9)
