"""Markdown and JUnit."""

from __future__ import annotations

import tomllib
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from leakgauge import toml
from leakgauge.report import junit, markdown, read
from leakgauge.report.markdown import code, plain
from leakgauge.report.words import INCONCLUSIVE, LADDER, fails
from tests.report.samples import ALL, make

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


def test_the_ladder_is_that_of_the_verdicts() -> None:
    from leakgauge.audit import verdict

    assert verdict.ORDER == LADDER


def test_toml_reads_back() -> None:
    value = {
        "seed": 0,
        "task": {"model": 'a"b\\c', "recipe": {"batch": 2, "rates": [0.1, 2.0]}, "normalise": {"mean": [0.5]}},
        "defenses": {"a b": "clip(norm=1.0) | gaussian(std=0.1)", "<x>": "identity()"},
        "empty": {},
    }
    assert tomllib.loads(toml.dump(value)) == value
    assert tomllib.loads(toml.dump({"a": None, "b": True})) == {"b": True}
