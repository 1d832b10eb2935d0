"""``leakgauge report`` and ``leakgauge compare``."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from leakgauge.cli.app import Program
from leakgauge.cli.compare import compare
from leakgauge.cli.report import report
from tests.report.samples import make


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer(cls=Program, rich_markup_mode=None, pretty_exceptions_enable=False)
    made.command("report")(report)
    made.command("compare")(compare)
    return made


def test_report_prints_the_paths_it_wrote(app: typer.Typer, tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    got = CliRunner().invoke(app, ["report", str(folder), "--format", "html, md", "--redact"])
    assert got.exit_code == 0, got.output
    assert got.output.split() == [str(folder / "report.html"), str(folder / "report.md")]
    assert not (folder / "junit.xml").exists()
    assert "data:image" not in (folder / "report.html").read_text()


def test_report_writes_elsewhere_if_asked(app: typer.Typer, tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    args = ["report", str(folder), "--out", str(tmp_path / "share"), "--format", "junit", "--fail-on", "exact"]
    assert CliRunner().invoke(app, args).exit_code == 0
    assert 'failures="0"' in (tmp_path / "share" / "junit.xml").read_text()
    assert not (folder / "junit.xml").exists()


def test_bad_usage_is_one_line_and_exit_code_2(app: typer.Typer, tmp_path: Path) -> None:
    for args in (["report", str(tmp_path)], ["report", str(make(tmp_path / "run")), "--format", "htm"]):
        got = CliRunner().invoke(app, args)
        assert got.exit_code == 2
        assert got.output.startswith("error: ")
        assert got.output.count("\n") == 1
    assert "did you mean 'html'?" in got.output
    nothing = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--format", " , "])
    assert nothing.exit_code == 2
    assert nothing.output == "error: --format: no format is given; use html,md,junit, or leave it out\n"


def test_compare_prints_tables_or_markdown(app: typer.Typer, tmp_path: Path) -> None:
    folders = [
        str(make(tmp_path / "a", {"noisy": "no evidence"})),
        str(make(tmp_path / "b", {"noisy": "recognisable"})),
    ]
    text = CliRunner().invoke(app, ["compare", *folders])
    assert text.exit_code == 0, text.output
    assert "worse verdict" in text.output
    markdown = CliRunner().invoke(app, ["compare", *folders, "--markdown"])
    assert markdown.output.startswith("# What changed\n")
    assert "| noisy | 0 | no evidence | recognisable | worse verdict |" in markdown.output


def test_names_from_a_run_cannot_steer_the_terminal(app: typer.Typer, tmp_path: Path) -> None:
    folder = str(make(tmp_path / "a", {"\x1b[31mred": "exact"}))
    got = CliRunner().invoke(app, ["compare", folder, folder])
    assert got.exit_code == 0, got.output
    assert "\x1b" not in got.output
