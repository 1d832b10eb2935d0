"""From results to texts: numbers, the page, the marks in README and docs."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from evidence.cli import main
from evidence.page import fill, number, page, render
from evidence.registry import Measurement, check
from evidence.rows import Row, problems
from evidence.store import Store, plain
from tests.evidence.fakes import FAKES, ROWS


@pytest.mark.parametrize(
    ("value", "text"),
    [(28.41234, "28.41"), (3, "3"), (True, "yes"), (1e-9, "1e-09"), (123456.7, "123457"), (1e9, "1e+09"), ("x", "x")],
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text


def test_values() -> None:
    assert render(None) == "not measured yet"
    assert render({"value": 1.5, "interval": [1.0, 2.0]}) == "1.5 [1, 2]"
    assert render({"value": {"a": 1.5, "b": "inf"}, "interval": {"a": [1.0, 2.0]}}) == "a: 1.5 [1, 2]; b: inf"
    assert render({"value": {"a": 1.5}, "interval": None}, "a") == "1.5"
    assert render({"value": None, "error": "OSError: no\nway"}) == "crashed: OSError: no way"


def test_plain_values() -> None:
    odd = {"a": np.float32(0.5), 2: torch.tensor(3), "c": (np.bool_(True), math.nan, -math.inf, None), "d": Path("x")}
    assert plain(odd) == {"a": 0.5, "2": 3, "c": [True, "nan", "-inf", None], "d": "x"}


def test_measurements_guard_themselves() -> None:
    with pytest.raises(ValueError, match="NaN cannot pass"):
        Measurement(value=math.nan, passed=True)
    with pytest.raises(ValueError, match="NaN cannot pass: b"):
        Measurement(value={"a": 1.0, "b": math.nan}, passed=True)
    with pytest.raises(ValueError, match="does not hold"):
        Measurement(value=3.0, interval=(1.0, 2.0), passed=True)
    assert not Measurement(value=math.nan, passed=False).passed


def test_registration_is_guarded() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        check("fake_good", rows="first")(lambda: Measurement(value=1.0, passed=True))
    with pytest.raises(ValueError, match="cost must be one of fast, minutes, long"):
        check("new", rows="first", cost="forever")


def test_problems_are_all_found() -> None:
    rows = [
        Row(2, "first", "", "", ("fake_good", "ghost")),
        Row(2, "first", "", "", ("fake_good",)),
        Row(2, "second", "", "", ()),
    ]
    found = problems(rows, {name: FAKES[name] for name in ("fake_good", "fake_bad", "fake_many")})
    assert len(found) == 6
    for words in (
        "'first' is there 2 times",
        "'fake_good' is listed 2 times",
        "lists no check",
        "'ghost', which is not",
    ):
        assert any(words in line for line in found)
    for words in ("'fake_bad' is not listed by its row 'first'", "row 'third', which rows.toml does not have"):
        assert any(words in line for line in found)
    assert problems(ROWS, {name: FAKES[name] for row in ROWS for name in row.checks}) == []


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    checks = {name: FAKES[name] for row in ROWS for name in row.checks}
    main(["--issue", "2"], root=tmp_path, rows=ROWS, checks=checks, isolate=False, console=Console(file=io.StringIO()))
    return tmp_path


def test_the_page(measured: Path) -> None:
    text = (measured / "docs" / "evidence.md").read_text()
    assert "1 of 4 checks pass, 2 fail, 1 are not measured yet." in text
    assert text.index("## Issue 2") < text.index("## Issue 3")
    assert "| what | bar | measured | pass | command | commit |" in text
    command = "`python -m evidence --only fake_good`"
    assert f"| a claim | at least 1 \\| or so | 28.41 [27.9, 28.92] | yes | {command} | unknown+ |" in text
    assert "|  |  | too low | **no** | `python -m evidence --only fake_bad` | unknown+ |" in text
    assert "| a later claim | several | not measured yet | – |" in text
    assert "### fake_good\n\nCounts its calls.\n\n20 records\n\n| n | dB |\n| --- | --- |\n| 1 | 2.5 |" in text
    assert "Crashed: `RuntimeError" in text
    assert page(ROWS, {name: Store(measured).read(name) for name in FAKES}) == text


def test_marks_are_filled(measured: Path) -> None:
    (measured / "docs" / "how-to").mkdir()
    before = "About <!-- evidence:fake_good -->9<!-- /evidence --> dB, <!-- evidence:fake_many -->\n<!-- /evidence -->."
    after = (
        "About <!-- evidence:fake_good -->28.41 [27.9, 28.92]<!-- /evidence --> dB, "
        "<!-- evidence:fake_many -->not measured yet<!-- /evidence -->."
    )
    texts = [measured / "README.md", measured / "docs" / "a.md", measured / "docs" / "how-to" / "b.md"]
    for path in texts:
        path.write_text(before)
    assert main(["--page"], root=measured, rows=ROWS, checks={}, console=Console(file=io.StringIO())) == 0
    assert [path.read_text() for path in texts] == [after] * 3


def test_a_mark_for_an_unknown_number_is_an_error(measured: Path) -> None:
    text = "<!-- evidence:ghost -->1<!-- /evidence -->"
    (measured / "README.md").write_text(text)
    out = io.StringIO()
    assert main(["--page"], root=measured, rows=ROWS, checks={}, console=Console(file=out)) == 2
    assert "README.md: no row lists a check 'ghost'" in out.getvalue()
    assert (measured / "README.md").read_text() == text


def test_marks_for_one_entry_of_several() -> None:
    results = {"many": {"value": {"a": 1.5, "b": 2.0}, "interval": None}, "none": None}
    wanted = "<!-- evidence:many.b -->2<!-- /evidence --> <!-- evidence:none.a -->not measured yet<!-- /evidence -->"
    asked = "<!-- evidence:many.b --><!-- /evidence --> <!-- evidence:none.a --><!-- /evidence -->"
    assert fill(asked, results, where="x") == wanted
    with pytest.raises(LookupError, match="no entry 'c'"):
        fill("<!-- evidence:many.c --><!-- /evidence -->", results, where="x")


def test_paths_of_this_machine_are_taken_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    text = f"{tmp_path.resolve()}/a.py and /opt/some/place/b.py, https://arxiv.org/abs/2111.04706, dW/db, ./a/b"
    assert store.scrub({"x": [text, 1]}) == {
        "x": ["./a.py and <path>, https://arxiv.org/abs/2111.04706, dW/db, ./a/b", 1]
    }
