"""Markdown and JUnit."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Figure
from leakgauge.audit.judge.words import INCONCLUSIVE, LADDER, fails
from leakgauge.report import junit, markdown, read
from leakgauge.report.formats import proven
from leakgauge.report.markdown import code, plain
from leakgauge.storage import toml
from tests.report.samples import ALL, BOUND, defense, make

GOLDEN = Path(__file__).parent / "golden.md"


def test_markdown_is_the_golden_text(tmp_path: Path) -> None:
    """When the text changes on purpose: write it anew and read the difference."""
    made = markdown(read(make(tmp_path / "run", {"none": "recognisable", "a|b": "no evidence", "bounded": "too weak"})))
    assert made == GOLDEN.read_text()


def test_markdown_shows_hostile_names_as_text() -> None:
    assert plain("<script>|*x*") == r"&lt;script&gt;\|\*x\*"
    assert plain("a\n# b") == r"a \# b"
    assert code("a | b") == r"`a \| b`"
    assert code("`x`") == "`` `x` ``"


def test_markdown_shows_a_hostile_unit_as_text(tmp_path: Path) -> None:
    run = read(make(tmp_path / "run", {"none": "recognisable"}))
    raw = run.result.as_json()
    for metric in raw["metrics"]:
        metric["unit"] = "<script>|"
    text = markdown(replace(run, result=Result.of_json(raw)))
    assert r"&lt;script&gt;\|" in text
    assert "<script>" not in text


@pytest.mark.parametrize("fail_on", LADDER[1:])
def test_junit_fails_what_leaks_and_what_could_not_be_judged(tmp_path: Path, fail_on: str) -> None:
    root = Xml.fromstring(junit(read(make(tmp_path / "run", ALL)), fail_on=fail_on))  # type: ignore[arg-type]
    cases = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert set(cases) == set(ALL)
    expected = {*(w.replace(" ", "-") for w in (*LADDER[LADDER.index(fail_on) :], *INCONCLUSIVE))}  # type: ignore[arg-type]
    assert {name for name, failure in cases.items() if failure is not None} == expected
    assert root.get("failures") == str(len(expected))


def test_junit_survives_names_that_xml_forbids(tmp_path: Path) -> None:
    root = Xml.fromstring(junit(read(make(tmp_path / "run", {'\x00<b> & "c"': "exact"}, (0, 5)))))
    assert [case.get("name") for case in root.iter("testcase")] == [f'\ufffd<b> & "c" at step {s}' for s in (0, 5)]


def test_a_gate_never_passes_what_could_not_be_judged() -> None:
    assert all(fails(word, "exact") for word in INCONCLUSIVE)
    assert not fails("no evidence", "detectable")


def test_toml_reads_back() -> None:
    value = {
        "seed": 0,
        "task": {"model": 'a"b\\c', "recipe": {"batch": 2, "rates": [0.1, 2.0]}, "normalise": {"mean": [0.5]}},
        "defenses": {"a b": "clip(norm=1.0) | gaussian(std=0.1)", "<x>": "identity()"},
        "empty": {},
    }
    assert tomllib.loads(toml.dump(value)) == value
    assert tomllib.loads(toml.dump({"a": None, "b": True})) == {"b": True}


@pytest.mark.parametrize(
    ("sentence", "plain"),
    [
        (
            "multiplies its success by more than e^5.532e+04, whatever",
            "a number of 24,026 digits, whatever",
        ),
        ("multiplies its success by more than e^0.5, whatever", "by more than 1.649, whatever"),
        (
            "(4.37718, 1e-05)-DP if one record is added or removed, by exact",
            "(4.37718, 1e-05)-DP if one record is added",
        ),
    ],
)
def test_proven_numbers_are_in_plain_words(sentence: str, plain: str) -> None:
    said = proven(Figure(value=1.0, sentence=sentence))
    assert plain in said
    assert "e^" not in said
    assert "exact" not in said


def test_a_bound_that_proves_nothing_says_just_that(tmp_path: Path) -> None:
    made = {**defense("dpsgd", "recognisable"), "bound": {**BOUND, "ceiling": 1.0, "unit": "client"}}
    folder = make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [made]}])
    text = markdown(read(folder))
    assert "- **dpsgd** (100 %: proves nothing): " in text
    assert "so there may be more than the verdict counts" in text
