"""The page and the command say of every table how it stands."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from leakgauge.cli import app
from leakgauge.papers.catalogue import tables
from leakgauge.papers.contract import Cell, Figure, Paper, Size, Table, Verdict, at_least, near
from leakgauge.papers.judging import Row, judged_again
from leakgauge.papers.recording import state_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
OWN = """
from leakgauge.papers.contract import Cell, Paper, Size, Table, near

def measure(side: int) -> dict[str, list[float]]:
    return {"a side": [float(side)]}

TABLE = Table(
    "mine/table-1", "Table 1: a die", Paper("Me, 2026."), (Cell("a side", near(3, 1)), Cell("a corner")),
    {"smoke": Size({"one": {"side": 3}}, ("one side",))}, measure,
)
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_papers", DOCS / "make_papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_was_recorded(script: ModuleType) -> None:
    assert (DOCS / "papers.md").read_text(encoding="utf-8") == script.page(), "run python docs/make_papers.py"
    for path, drawing in script.figures().items():
        assert path.read_text(encoding="utf-8") == drawing, "run python docs/make_papers.py"


def test_the_page_has_every_table(script: ModuleType) -> None:
    page = script.page()
    for name in tables():
        assert f"\n## {name}\n" in page


def row(name: str, paper: str, verdict: Verdict, why: str = "") -> Row:
    return Row(name, paper, "", None, None, None, 0, verdict, why)


def test_cells_without_a_number_stand_together_by_reason_with_the_papers(script: ModuleType) -> None:
    rows = [row("a", "1 ± 0.1", "cannot be run", "no data"), row("b", "2", "not run")]
    rows += [row("c|d", "", "cannot be run", "no data"), row("e", "3", "differs", "a reason")]
    assert script.unmeasured(rows) == "\nCannot be run, no data: a (1 ± 0.1); c\\|d.\n\nNot run: b (2).\n"


def test_long_lists_of_cells_without_a_number_are_folded(script: ModuleType) -> None:
    text = script.unmeasured([row(f"cell {i}", "", "not run") for i in range(11)])
    assert text.startswith("\n<details><summary>Not run: 11 cells</summary>\n\ncell 0; cell 1;")
    assert text.endswith("cell 10.\n\n</details>\n")


def result_of(**changes: Any) -> dict[str, Any]:
    """A recorded result of one cell."""
    numbers = {"value": 19.5, "low": 18.5, "high": 20.5, "samples": 3}
    recorded = {"name": "one", "paper": "", "unit": "dB", "verdict": "reproduced", "why": "", **numbers, **changes}
    return {"rows": [recorded], "notes": {"one": "weight 1", "two": "slow"}, "reduced": [], "scale": "small"}


def one_cell(**changes: Any) -> Table:
    cells = (Cell("one", near(19, 1), "dB"),)
    whole = Table("mine/table-1", "Table 1", Paper("Me."), cells, {"small": Size({"one": {}, "two": {}})})
    return dataclasses.replace(whole, **changes)


def test_a_note_stands_beside_its_row_or_below(script: ModuleType) -> None:
    table, result = one_cell(cells=(Cell("one", near(19, 2), "dB"),)), result_of()
    lines = script.rows_of(judged_again(table, result), result)
    assert "| one | 19 ± 2 | 19.5 dB [18.5, 20.5] | reproduced | weight 1 |" in lines
    assert script.remarks(table, result) == ["\ntwo: slow.\n"]


def test_the_page_has_the_bars_and_reasons_of_today(script: ModuleType) -> None:
    result = result_of()
    open_cell = script.rows_of(judged_again(one_cell(), result), result)
    assert "the mean meets the bar, part of its interval does not; weight 1 |" in open_cell
    bar = one_cell(cells=(Cell("one", at_least(30, ours=True), "dB"),), reasons={"one": "a reason found later"})
    differing = script.rows_of(judged_again(bar, result), result)
    assert "| one | ≥ 30 (our bar) | 19.5 dB [18.5, 20.5] | differs | a reason found later; weight 1 |" in differing


def test_the_page_marks_code_as_markdown_does(script: ModuleType) -> None:
    assert "``" not in script.page()


def test_every_curve_is_drawn_in_one_panel_with_its_own_axes(script: ModuleType) -> None:
    how = Figure("ε", "MSE", log_x=True, of=", epsilon")
    figures = (how, Figure("capacity", "MSE", of=", capacity"))
    table = Table("mine/figure-1", "Figure 1", Paper("Me."), (Cell("a"),), figures=figures)
    curves = {"one, epsilon": [[1.0, 0.1], [1000.0, 0.2]], "one, capacity": [[5.0, 0.3], [6.0, 0.2]]}
    (first, mine), (_, other) = script.panels(table, {"curves": curves})
    assert (first, mine, other) == (how, {"one": curves["one, epsilon"]}, {"one": curves["one, capacity"]})
    assert [script.panel_name(table, one) for one in figures] == ["minefigure-1.svg", "minefigure-1-2.svg"]
    drawing = script.drawn(mine, how, "Figure 1")
    assert ">1,000<" in drawing  # the numbers of a logarithmic axis are those of the data, not their logarithms
    assert ">one<" in drawing
    assert "epsilon" not in drawing
    assert script.panels(table, {"curves": {"one, capacity": [[5.0, 0.3]]}}) == []  # a point is no curve
    assert script.panels(table, {"curves": {"one, capacity": [[5.0, 0.3], [6.0, math.inf]]}}) == []  # nor is infinity


def test_the_command_prints_one_line_each() -> None:
    printed = CliRunner().invoke(app, ["papers"]).output.splitlines()
    known = tables()
    assert [line.split()[0] for line in printed] == list(known)
    for line, table in zip(printed, known.values(), strict=True):
        assert line.endswith(f"  {table.title}  {state_of(table)}")


def test_somebodys_own_table_runs_only_on_their_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_papers_module.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    refused = CliRunner().invoke(app, ["papers", "run", "own_papers_module:TABLE"])
    assert refused.exit_code == 2
    assert "--own-code" in refused.output
    done = CliRunner().invoke(app, ["papers", "run", "own_papers_module:TABLE", "--own-code", "--out", "run"])
    assert done.exit_code == 0
    assert "a side    3 ± 1  3     measured" in done.output  # a smoke run judges claims alone
    assert "reduced: one side" in done.output
    assert done.output.splitlines()[-1].endswith("processor seconds; stored in run")
    assert (tmp_path / "run" / "mine-table-1.smoke.json").is_file()  # with the paper: others may share the folder
    unknown = CliRunner().invoke(app, ["papers", "run", "bayes/table-2", "--scale", "tiny"])
    assert unknown.exit_code == 2
    assert "say --scale smoke" in unknown.output
