"""`leakgauge papers run`: faults are sentences, each said once, and typos are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from leakgauge.cli import app
from leakgauge.errors import DomainError
from leakgauge.papers.contract import Cell, Paper, Size, Table, near
from leakgauge.papers.judging import judged, unused
from leakgauge.papers.running import run

HEAD = "from leakgauge.papers.contract import Cell, Paper, Size, Table, near\nfrom leakgauge.errors import DataError\n"
TABLE = """
TABLE = Table(
    "mine/table-1", "Table 1", Paper("Me."), (Cell("x", near(1, 0)),),
    {"smoke": Size({f"unit {i}, again": {"i": i} for i in range(4)})}, measure,
)
"""


def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, *more: str) -> Result:
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return CliRunner().invoke(app, ["papers", "run", f"{name}:TABLE", "--own-code", *more])


def test_failing_units_are_counted_and_one_fault_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = "def measure(i): raise DataError('is not here', where='mnist', remedy='fetch it')\n"
    done = invoke(tmp_path, monkeypatch, "all_fail_module", HEAD + measure + TABLE)
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "4 of 4 units failed"
    assert done.output.count("mnist: is not here; fetch it") == 1
    assert done.output.count("failed in the same way") == 3
    assert "DataError" not in done.output


def test_samples_that_no_cell_uses_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = "def measure(i): return {'x': [1.0], 'a typo': [1.0]}\n"
    done = invoke(tmp_path, monkeypatch, "typo_module", HEAD + measure + TABLE)
    assert "warning: no cell uses the samples 'a typo'" in done.output
    part = invoke(
        tmp_path / "", monkeypatch, "typo_module", HEAD + measure + TABLE, "--only", "unit 0, again", "--out", "b"
    )
    assert "warning" not in part.output


def test_samples_that_a_computed_cell_uses_are_used() -> None:
    cells = (Cell("x"), Cell("sum", of=lambda samples: [sum(samples["y"])]))
    table = Table("mine/table-1", "Table 1", Paper("Me."), cells)
    assert unused(table, {"x": [1.0], "y": [1.0], "z": [1.0]}) == ["z"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("TABLE = (\n", "cannot load 'broken_module:TABLE' (SyntaxError: "),
        ("import nosuch_module_at_all\n", "cannot load 'broken_module:TABLE' (No module named 'nosuch_module_at_all')"),
        ("TABLE = 3\n", "broken_module:TABLE: is no Table; "),
        (HEAD + "def measure(i): return {}\n" + TABLE.replace('"i": i', '"i": {i}'), "cannot be stored as JSON"),
    ],
)
def test_a_broken_module_is_a_sentence(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broken_module", raising=False)
    refused = invoke(tmp_path, monkeypatch, "broken_module", text)
    assert refused.exit_code == 2
    assert sentence in refused.output
    monkeypatch.delitem(sys.modules, "broken_module", raising=False)


def test_a_module_that_is_not_there_is_a_sentence() -> None:
    refused = CliRunner().invoke(app, ["papers", "run", "nosuch_module_at_all:TABLE", "--own-code"])
    assert refused.exit_code == 2
    assert "cannot load 'nosuch_module_at_all:TABLE'" in refused.output


def test_an_unknown_unit_is_met_by_quoted_names(tmp_path: Path) -> None:
    table = Table("mine/table-1", "T", Paper("Me."), (Cell("x"),), {"smoke": Size({"a, b": {}, "c, d": {}})}, dict)
    with pytest.raises(DomainError, match="no unit 'a, bb'; did you mean 'a, b'"):
        run(table, "smoke", tmp_path, only=["a, bb"])
    with pytest.raises(DomainError, match="no unit 'other'; known: 'a, b', 'c, d'"):
        run(table, "smoke", tmp_path, only=["other"])


def test_a_computed_cell_that_fails_is_named() -> None:
    table = Table("mine/table-1", "T", Paper("Me."), (Cell("ratio", of=lambda samples: [1 / 0]),))
    with pytest.raises(DomainError, match=r"mine/table-1, cell 'ratio': `of` failed \(ZeroDivisionError"):
        judged(table, Size({}), {})


def test_reasons_of_no_cell_are_refused() -> None:
    with pytest.raises(DomainError, match="`reasons` names 'onee', which is no cell; did you mean 'one'"):
        Table("mine/table-1", "T", Paper("Me."), (Cell("one", near(1, 0)),), reasons={"": "all", "onee": "a typo"})


def test_a_folder_in_use_offers_what_this_command_has(tmp_path: Path) -> None:
    holder = "import sys, time, pathlib\nfrom leakgauge.storage.lock import locked\n"
    holder += f"with locked(pathlib.Path({str(tmp_path)!r})):\n    print('held', flush=True)\n    time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            refused = CliRunner().invoke(app, ["papers", "run", "capacity/theorem-iv-1", "--out", str(tmp_path)])
        finally:
            process.kill()
    assert refused.exit_code == 2
    assert "another run is at work in it; wait until it has ended, or give another --out" in refused.output
    assert "--engine" not in refused.output


def test_intervals_end_where_values_do() -> None:
    cells = (
        Cell("recall", within=(0, 1)),
        Cell("whole batches", share=True),
        Cell("labels", share=True, within=(0, 100)),
        Cell("other"),
    )
    table = Table("mine/table-1", "T", Paper("Me."), cells)
    samples = {"recall": [0.9, 1.0, 0.5], "whole batches": [1.0] * 3, "labels": [0.0] * 3, "other": [0.9, 1.0, 0.5]}
    recall, whole, labels, other = judged(table, Size({}), samples)
    assert recall.high == 1
    assert other.high is not None
    assert other.high > 1
    assert (whole.value, whole.high, whole.low) == (1, 1, pytest.approx(0.2924, abs=1e-4))  # 0.025 ** (1 / 3)
    assert (labels.value, labels.low, labels.high) == (0, 0, pytest.approx(70.76, abs=1e-2))
