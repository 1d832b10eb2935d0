"""What may be recorded over what: nothing that was measured is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from leakgauge.cli import app
from leakgauge.papers.contract import Cell, Paper, Size, Table, near
from leakgauge.papers.recording import record, recorded, state_of
from leakgauge.papers.running import run

FAILING: set[str] = set()


def measure(name: str) -> dict[str, list[float]]:
    if name in FAILING:
        raise ValueError("the die fell off the table")
    return {name: [1.0]}


WORK = {name: {"name": name} for name in ("a", "b", "c")}
TABLE = Table(
    "dice/table-2",
    "Table 2: three dice",
    Paper("Somebody, Dice, 1654"),
    tuple(Cell(name, near(1, 0.1)) for name in (*WORK, "d")),
    {"small": Size(WORK), "full": Size({**WORK, "d": {"name": "d"}})},
    measure,
)


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    FAILING.clear()


def test_a_run_with_faults_is_not_recorded(tmp_path: Path) -> None:
    record(run(TABLE, "small", tmp_path / "run"), tmp_path)
    FAILING.add("d")
    sentence = record(run(TABLE, "full", tmp_path / "run"), tmp_path)
    assert sentence == "not recorded: 1 of 4 units failed; the result that was recorded before is kept"
    result = recorded(TABLE, tmp_path)
    assert result is not None
    assert result["scale"] == "small"


def test_an_incomplete_larger_scale_does_not_replace_a_smaller_one(tmp_path: Path) -> None:
    record(run(TABLE, "small", tmp_path / "run"), tmp_path)
    sentence = record(run(TABLE, "full", tmp_path / "run", only=["a"]), tmp_path)
    assert sentence.startswith("not recorded: 1 of 4 units that it needs were not run, such as 'd'; ")
    assert record(run(TABLE, "full", tmp_path / "run"), tmp_path).startswith("recorded in ")


def test_units_can_be_added_to_a_recorded_scale_and_none_is_lost(tmp_path: Path) -> None:
    record(run(TABLE, "full", tmp_path / "run", only=["a"]), tmp_path)
    record(run(TABLE, "full", tmp_path / "run", only=["b"]), tmp_path)
    sentence = record(run(TABLE, "full", tmp_path / "other", only=["a", "c"]), tmp_path)
    assert sentence.startswith("not recorded: 1 of 2 units that it needs were not run, such as 'b'; ")
    result = recorded(TABLE, tmp_path)
    assert result is not None
    assert sorted(result["units"]) == ["a", "b"]


def test_a_smaller_scale_says_what_is_kept(tmp_path: Path) -> None:
    record(run(TABLE, "full", tmp_path / "run"), tmp_path)
    sentence = record(run(TABLE, "small", tmp_path / "run"), tmp_path)
    assert sentence.startswith("not recorded: full is recorded, which is larger than small; ")


def test_somebodys_own_table_is_not_recorded_with_our_sources() -> None:
    refused = CliRunner().invoke(app, ["papers", "run", "nobodys_module:TABLE", "--own-code", "--record"])
    assert refused.exit_code == 2
    assert "leave --record out" in refused.output


def stood_in(value: float) -> dict[str, list[float]]:
    return {"other data": [value]}


def test_a_smoke_of_stand_ins_is_called_that(tmp_path: Path) -> None:
    cells = (Cell("a", near(1, 0.1)), Cell("other data", near(1, 0.1), claim=True, stand_in=True))
    sizes = {"smoke": Size({"one": {"value": 1.0}}, ("other data",)), "small": Size({"two": {"value": 1.0}}, ("less",))}
    table = Table("dice/table-3", "Table 3", Paper("Somebody."), cells, sizes, stood_in)  # type: ignore[arg-type]
    record(run(table, "smoke", tmp_path / "run"), tmp_path)
    assert state_of(table, tmp_path) == "smoke only (1 of 2 cells holds when reduced, on stand-ins; 1 not run)"
    record(run(table, "small", tmp_path / "run"), tmp_path)
    assert state_of(table, tmp_path) == "holds when reduced (1 of 2 cells; 1 not run), small"
