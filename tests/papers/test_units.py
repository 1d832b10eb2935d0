"""Units of work: what identifies one, which results are refused, what infinity becomes."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from leakgauge.errors import DomainError
from leakgauge.papers.catalogue import table_of
from leakgauge.papers.contract import Cell, Measured, Paper, Size, Table, at_least, difference
from leakgauge.papers.reached import reached, reached_from
from leakgauge.papers.running import run
from leakgauge.papers.units import code_of, read_unit, restored, storable, units_of

RETURNED: dict[str, Any] = {
    "nan": {"x": [1.0, math.nan]},
    "nan in a curve": Measured({"x": [1.0]}, curves={"line": [(0.0, 1.0), (1.0, math.nan)]}),
    "infinite": Measured(
        {"x": [50.0, 60.0, math.inf], "y": [40.0, 50.0, math.inf]}, curves={"line": [(0.0, math.inf)]}
    ),
    "a number": 3.0,
    "no list": {"x": 3.0},
    "fine": {"x": [1.0, 2.0]},
}


def returns(what: str) -> Any:
    return RETURNED[what]


def table(what: str, **changes: Any) -> Table:
    cells = (Cell("x", at_least(0)), Cell("gap", of=difference("x", "y")))
    whole = Table("mine/table-1", "Table 1", Paper("Me."), cells, {"small": Size({"one": {"what": what}})}, returns)
    return dataclasses.replace(whole, **changes)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("nan", "measure: number 2 of 2 in the samples of 'x' is NaN; "),
        ("nan in a curve", "measure: number 2 of 2 in point 2 of the curve 'line' is NaN; "),
        ("a number", "measure: returned float; return samples by cell, or a Measured"),
        ("no list", "measure: the samples of 'x' must be a list of numbers, got float; "),
    ],
)
def test_a_result_that_is_no_measurement_fails_its_unit(what: str, sentence: str, tmp_path: Path) -> None:
    outcome = run(table(what), "small", tmp_path)
    assert outcome.faults["one"].startswith(sentence)
    assert outcome.row("x").verdict == "not run"


def test_infinity_stays_infinite_through_the_store(tmp_path: Path) -> None:
    outcome = run(table("infinite"), "small", tmp_path)
    row = outcome.row("x")
    assert (row.value, row.high) == (math.inf, math.inf)
    assert row.low is not None
    assert math.isfinite(row.low)
    assert outcome.row("gap").value == pytest.approx(20 / 3)  # equal infinities differ by nothing
    assert outcome.curves["line"] == [(0.0, math.inf)]
    text = (tmp_path / "mine-table-1.small.json").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


@pytest.mark.parametrize("value", [1.5, math.inf, -math.inf])
def test_numbers_are_restored_as_they_were(value: float) -> None:
    assert restored(json.loads(json.dumps(storable(value), allow_nan=False))) == value


def test_infinity_is_stored_by_name() -> None:
    assert (storable(math.inf), storable(-math.inf), storable(1e300)) == ("inf", "-inf", 1e300)


def test_older_cells_have_a_large_number_for_infinity() -> None:
    unit = read_unit({"samples": {"x": [1.0, 1e300, -1e300]}, "notes": {}, "curves": {}})
    assert unit is not None
    assert unit.samples["x"] == [1.0, math.inf, -math.inf]


def test_a_stored_unit_without_samples_is_computed_again(tmp_path: Path) -> None:
    mine = table("fine")
    run(mine, "small", tmp_path)
    (cell,) = (tmp_path / "cells").glob("*.json")
    cell.write_text('{"kind": "call"}')
    assert run(mine, "small", tmp_path).row("x").value == pytest.approx(1.5)


def test_arguments_that_are_no_json_are_refused() -> None:
    mine = table("fine", sizes={"small": Size({"one": {"what": {1, 2}}})})
    with pytest.raises(DomainError, match="mine/table-1: the arguments of the unit 'one' cannot be stored as JSON"):
        units_of(mine, "small")


def module(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A freshly imported module of a folder."""
    monkeypatch.syspath_prepend(folder)
    for known in [known for known in sys.modules if known.partition(".")[0] == name.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, known)
    importlib.invalidate_caches()
    return importlib.import_module(name)


@pytest.mark.parametrize("name", ["plain_measure_of_mine", "package_of_mine.inner.measuring"])
def test_somebodys_units_change_with_the_code_beside_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{name.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("def measure(): return {}\n")
    helper = tmp_path / "package_of_mine" / "helper.py" if "." in name else tmp_path / "helper.py"
    for folder in (path.parent, path.parent.parent) if "." in name else ():
        (folder / "__init__.py").touch()
    helper.write_text("FACTOR = 1\n")
    measure = module(tmp_path, name, monkeypatch).measure
    before = code_of(measure)
    assert code_of(measure) == before
    helper.write_text("FACTOR = 2\n")
    assert code_of(measure) != before


def test_leakgauges_own_units_change_with_what_measure_reaches() -> None:
    code = reached_from("leakgauge.papers.bayes.table_5", "measure")
    assert "def measure(" in code
    assert "def task_at(" in code  # of another module of the room
    assert "TABLES" not in code
    assert "class Cell" not in code  # a word of the contract
    assert len({cell.id for cell in units_of(table_of("idlg/table-1"), "smoke").values()}) == 2


MODULE = '''"""Text."""
from somewhere import helper, other
RATE, BAR = 1, 2
NAMES = [name for name in "ab"]
def cached(f):
    return f
@cached
def measure(name):
    """Doc."""
    return helper(inner(name))
def inner(x):
    if x:
        return RATE
def cell():
    return 3
TABLES = (cell(), *(name for name in NAMES), other)
'''


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        ("RATE, BAR = 1", "RATE, BAR = 5", True),
        ("return RATE", "return 2 * RATE", True),
        ("@cached\n", "", True),
        ("    return f", "    return None", True),
        ("import helper", "import other as helper", True),
        ("return 3", "return 4", False),
        ('"""Doc."""', '"""Another."""', False),
        ('"""Text."""', '"""Another."""', False),
        ('in "ab"', 'in "abc"', False),
        ("TABLES = (cell(), ", "TABLES = (", False),
        ("def inner", "\n\ndef inner", False),
    ],
)
def test_only_what_measure_reaches_in_its_file_counts(before: str, after: str, matters: bool) -> None:
    assert before in MODULE
    assert (reached(MODULE, "measure") != reached(MODULE.replace(before, after), "measure")) == matters
