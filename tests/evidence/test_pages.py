"""From results to texts: numbers, the page, the marks in README and docs."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from evidence import Measurement, Number, above, at_least, at_most, check, within
from evidence.cli import main
from evidence.page import bar, fill, number, page, render, summary
from evidence.rows import Row, problems
from evidence.state import State, states
from evidence.store import Store, plain
from tests.evidence.fakes import FAKES, ROWS


@pytest.mark.parametrize(
    ("value", "text"),
    [(28.41234, "28.41"), (3, "3"), (True, "yes"), (1e-9, "1e-09"), (123456.7, "123457"), (1e9, "1e+09"), ("x", "x")],
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text


def test_bars_in_words() -> None:
    assert [bar(one) for one in (at_least(25), above(0.001), at_most(1e-9), within(1.5, 19.95), None)] == [
        "≥ 25",
        "> 0.001",
        "≤ 1e-09",
        "19.95 ± 1.5",
        "—",
    ]


def test_values() -> None:
    assert render(State("not measured")) == "not measured yet"
    assert render(State("measure anew", result={})) == "to be measured anew"
    assert render(State("crashed", result={"error": "OSError: no\nway"})) == "crashed: OSError: no way"
    one = State("pass", numbers={"a": Number(1.5, at_least(1), (1.0, 2.0))})
    assert render(one) == "1.5 [1, 2]"
    assert render(one, judged=True) == "a: 1.5 [1, 2] (≥ 1: yes)"
    two = State(
        "miss", numbers={"a": Number(0.00003, at_most(0.05)), "b": Number(0.076, at_most(0.05)), "c": Number(1)}
    )
    assert render(two) == "a: 3e-05; b: 0.076; c: 1"
    assert render(two, "b") == "0.076"
    assert render(two, judged=True) == "a: 3e-05 (≤ 0.05: yes); b: 0.076 (≤ 0.05: **no**); 1 more"
    many = State("no bar", numbers={str(i): Number(i) for i in range(10)})
    assert render(many, judged=True) == "0: 0; 1: 1; 2: 2; 3: 3; 6 more"


def test_the_headline_counts_what_is_old() -> None:
    assert summary([State("pass")] * 2) == "2 checks: every bar is met in 2."
    assert summary([State("pass", old=True)] * 71) == "71 checks: every bar is met in 71 (71 older than the code)."
    mixed = [State("pass"), State("pass", old=True), State("miss"), State("no bar", old=True), State("not measured")]
    assert summary([*mixed, State("crashed"), State("measure anew")]) == (
        "7 checks: every bar is met in 2 (1 older than the code), a bar is missed in 1, "
        "measured without a bar: 1 (1 older than the code), crashed: 1, to be measured anew: 1, not measured yet: 1."
    )


def test_plain_values() -> None:
    odd = {"a": np.float32(0.5), 2: torch.tensor(3), "c": (np.bool_(True), math.nan, -math.inf, None), "d": Path("x")}
    assert plain(odd) == {"a": 0.5, "2": 3, "c": [True, "nan", "-inf", None], "d": "x"}


def test_registration_is_guarded() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        check("fake_good", rows="first")(lambda: Measurement({"a": Number(1.0)}))
    with pytest.raises(ValueError, match="cost must be one of fast, minutes, long"):
        check("new", rows="first", cost="forever")


def test_problems_are_all_found() -> None:
    rows = [
        Row("attacks", "first", "", "", ("fake_good", "ghost")),
        Row("attacks", "first", "", "", ("fake_good",)),
        Row("ticket 2", "second", "", "", ()),
    ]
    found = problems(rows, {name: FAKES[name] for name in ("fake_good", "fake_bad", "fake_many")})
    assert len(found) == 7
    for words in (
        "'first' is there 2 times",
        "'fake_good' is listed 2 times",
        "lists no check",
        "'ghost', which is not",
        "'second' has the topic 'ticket 2'; the topics are foundations, attacks",
    ):
        assert any(words in line for line in found)
    for words in ("'fake_bad' is not listed by its row 'first'", "row 'third', which rows.toml does not have"):
        assert any(words in line for line in found)
    assert problems(ROWS, {name: FAKES[name] for row in ROWS for name in row.checks}) == []


CHECKS = {name: FAKES[name] for row in ROWS for name in row.checks}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A project with code and measured checks."""
    for place in ("src/leakgauge/__init__.py", "src/leakgauge/a.py", "tests/evidence/fakes.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("x = 1\n")
    command(tmp_path, "--topic", "attacks")
    return tmp_path


def command(root: Path, *arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    code = main(arguments, root=root, rows=ROWS, checks=CHECKS, isolate=False, console=Console(file=out))
    return code, out.getvalue()


def test_the_page(measured: Path) -> None:
    text = (measured / "docs" / "evidence.md").read_text()
    assert "4 checks: every bar is met in 1, a bar is missed in 1, crashed: 1, not measured yet: 1." in text
    assert text.index("## Attacks") < text.index("## Speed")
    assert "| what | bar | measured | pass | measured at | command |" in text
    good = "| a claim | at least 1 \\| or so | dB: 28.41 [27.9, 28.92] (≥ 25: yes) | yes | unknown+, "
    assert good in text
    assert "|  |  | low: 0.076 (≥ 0.5: **no**); high: 0.9 (≥ 0.5: yes) | **no** | unknown+, " in text
    assert "| a later claim | several | not measured yet | – |  | `python -m evidence --only fake_many` |" in text
    assert "| low | 0.076 | ≥ 0.5 | **no** |\n| high | 0.9 | ≥ 0.5 | yes |" in text
    assert "### fake_good\n\nCounts its calls.\n\n20 records\n\n| number | measured | bar | meets it |\n" in text
    assert "| n | dB |\n| --- | --- |\n| 1 | 2.5 |" in text
    assert "Crashed: `RuntimeError" in text
    assert "older than the code**" not in text
    assert page(ROWS, states(ROWS, CHECKS, Store(measured))) == text


def test_a_page_with_old_rows_says_so(measured: Path) -> None:
    (measured / "README.md").write_text("<!-- evidence:fake_good -->?<!-- /evidence -->")
    (measured / "src" / "leakgauge" / "a.py").write_text("x = 1  # the same\n")
    assert command(measured, "--page")[0] == 0
    assert "older than the code**" not in (measured / "docs" / "evidence.md").read_text()
    assert ">28.41 [27.9, 28.92]<" in (measured / "README.md").read_text()
    (measured / "src" / "leakgauge" / "a.py").write_text("x = 2\n")
    assert command(measured, "--page")[0] == 0
    text = (measured / "docs" / "evidence.md").read_text()
    assert "4 checks: every bar is met in 1 (1 older than the code), a bar is missed in 1, crashed: 1," in text
    assert text.count("**older than the code** | `python -m evidence --only fake_good` |") == 1
    assert text.count("older than the code** |") == 1  # the other checks do not use that module
    assert "**Older than the code**: measured at unknown+, " in text
    assert ">28.41 [27.9, 28.92] (older than the code)<" in (measured / "README.md").read_text()


def test_a_result_without_bars_is_not_called_passed(measured: Path) -> None:
    path = measured / "docs" / "evidence" / "fake_good.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "numbers": None, "value": 28.412, "passed": True}))
    assert command(measured, "--page")[0] == 0
    text = (measured / "docs" / "evidence.md").read_text()
    assert "4 checks: a bar is missed in 1, crashed: 1, to be measured anew: 1, not measured yet: 1." in text
    assert "| a claim | at least 1 \\| or so | to be measured anew | – |" in text


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
    assert command(measured, "--page")[0] == 0
    assert [path.read_text() for path in texts] == [after] * 3


def test_a_mark_for_an_unknown_number_is_an_error(measured: Path) -> None:
    text = "<!-- evidence:ghost -->1<!-- /evidence -->"
    (measured / "README.md").write_text(text)
    code, out = command(measured, "--page")
    assert code == 2
    assert "README.md: no row lists a check 'ghost'" in out
    assert (measured / "README.md").read_text() == text


def test_marks_for_one_entry_of_several() -> None:
    results = {"many": State("no bar", numbers={"a": Number(1.5), "b": Number(2.0)}), "none": State("not measured")}
    wanted = "<!-- evidence:many.b -->2<!-- /evidence --> <!-- evidence:none.a -->not measured yet<!-- /evidence -->"
    asked = "<!-- evidence:many.b --><!-- /evidence --> <!-- evidence:none.a --><!-- /evidence -->"
    assert fill(asked, results, where="x") == wanted
    with pytest.raises(LookupError, match="no number 'c'"):
        fill("<!-- evidence:many.c --><!-- /evidence -->", results, where="x")


def test_paths_of_this_machine_are_taken_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    text = f"{tmp_path.resolve()}/a.py and /opt/some/place/b.py, https://arxiv.org/abs/2111.04706, dW/db, ./a/b"
    assert store.scrub({"x": [text, 1]}) == {
        "x": ["./a.py and <path>, https://arxiv.org/abs/2111.04706, dW/db, ./a/b", 1]
    }
