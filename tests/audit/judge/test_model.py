"""A result: written by audits, read by reports, shown in notebooks."""

from __future__ import annotations

import json
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from leakgauge.audit.judge.model import Result, RunError
from leakgauge.audit.judge.words import WORDS
from leakgauge.errors import DomainError, ExitCode
from leakgauge.meaning import SSIM
from leakgauge.report import html, markdown, report
from leakgauge.report.reading import Run
from tests.report.samples import ALL, defense, frame, make

OLDER = Path(__file__).parent / "older.json"
HOSTILE = '<img src=x onerror="alert(1)">'


def result(*defenses: dict[str, Any], **changes: Any) -> Result:
    return Result.of_json({**frame([]), "checkpoints": [{"step": 0, "defenses": list(defenses)}], **changes})


def test_verdicts_records_and_bounds_are_attributes(tmp_path: Path) -> None:
    found = Result.load(make(tmp_path / "run", {"none": "recognisable", "bounded": "no evidence"}))
    assert found.verdicts == {"none": "recognisable", "bounded": "no evidence"}
    assert [record.record for record in found.records["none"]] == [0, 1, 2, 3, 4]
    assert found.bounds["bounded"] is not None
    assert found.bounds["bounded"].ceiling == 0.02
    assert found.defenses["none"].bare
    assert found.worst == "recognisable"
    assert found.conclusive


def test_the_worst_checkpoint_decides_and_silence_never_hides_what_could_not_be_judged() -> None:
    first = {"step": 0, "defenses": [defense("a", "no evidence"), defense("b", "no evidence")]}
    second = {"step": 9, "defenses": [defense("a", "too weak"), defense("b", "detectable")]}
    found = Result.of_json({**frame([]), "checkpoints": [first, second]})
    assert found.verdicts == {"a": "too weak", "b": "detectable"}
    assert not found.conclusive
    assert {name: at.step for name, (at, _) in found.decisive.items()} == {"a": 9, "b": 9}


def test_what_is_saved_loads_as_the_same(tmp_path: Path) -> None:
    found = Result.load(make(tmp_path / "run", ALL))
    for place in (tmp_path / "copy", tmp_path / "copy.json"):
        file = found.save(place)
        assert file.stat().st_mode & 0o777 == 0o600
        assert Result.load(place) == found
        assert Result.load(file).text() == found.text()


def test_a_result_of_an_older_version_still_reads(tmp_path: Path) -> None:
    """It says neither its metrics nor its parts: it was scored by SSIM and PSNR, and told defenses apart by text."""
    raw = json.loads(OLDER.read_text())
    assert not {"metrics", "domain"} & raw.keys()
    found = Result.load(OLDER)
    assert found.verdicts == {d["name"]: d["attack"]["verdict"] for d in raw["checkpoints"][0]["defenses"]}
    assert found.judge.name == "ssim"
    assert found.meaning(found.thresholds.exactness).unit == "dB"
    first = raw["checkpoints"][0]["defenses"][0]["records"][0]
    assert found.records["moved"][0].scores == {"psnr": first["psnr"]}
    assert found.as_json()["checkpoints"][0]["defenses"][0]["records"][0]["psnr"] == first["psnr"]
    found.save(tmp_path)
    assert all(path.read_text() for path in report(tmp_path))
    assert _missing(raw, found.as_json()) == []  # schema 1 loses no key


def _missing(old: Any, new: Any, at: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict) and not at.startswith(".spec"):
        gone = [f"{at}.{key}" for key in old if key not in new]
        return gone + [x for key in old if key in new for x in _missing(old[key], new[key], f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list):
        return [x for i, (a, b) in enumerate(zip(old, new, strict=True)) for x in _missing(a, b, f"{at}[{i}]")]
    return []


def test_what_cannot_be_read_is_said_with_the_remedy(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "has no result.json"), (tmp_path / "nowhere", "there is no such file or folder")):
        with pytest.raises(RunError, match=said):
            Result.load(path)
    for text in ("{", '{"spec": NaN}', '{"spec": 1e999}'):
        (tmp_path / "result.json").write_text(text)
        with pytest.raises(RunError, match=r"cannot be read .*run the audit again"):
            Result.load(tmp_path)


def test_numbers_that_no_float_holds_are_refused_wherever_they_stand(tmp_path: Path) -> None:
    file = make(tmp_path / "run") / "result.json"
    raw = json.loads(file.read_text())
    raw["metrics"] = [{**asdict(SSIM), "best": "9" * 400}]
    file.write_text(json.dumps(raw))
    with pytest.raises(RunError, match="finite"):
        Result.load(file)


def test_a_short_repr_and_a_table_for_notebooks_with_everything_escaped() -> None:
    found = result({**defense(HOSTILE, "exact"), "expression": HOSTILE}, scope=HOSTILE)
    assert repr(found) == str(found) == f"Result({HOSTILE}: exact)"
    page = found._repr_html_()
    tags = _Tags()
    tags.feed(page)
    assert tags.names.isdisjoint({"img", "script", "link", "style"})
    assert {"table", "td"} <= tags.names
    assert "exact" in page
    assert "http" not in page


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)


@pytest.mark.parametrize("word", ["too weak", "incomplete", "invalid", "recognisable", "exact"])
def test_a_gate_fails_on_what_leaks_and_on_what_cannot_be_judged(word: str) -> None:
    (line,) = result(defense("d", word)).failing("recognisable")
    assert line.startswith(f"d: {word}: ")
    assert result(defense("d", "detectable")).failing("recognisable") == []
    with pytest.raises(DomainError, match="a gate is one of"):
        result(defense("d", word)).failing("no evidence")


@pytest.mark.parametrize(("state", "lines"), [("contradiction", ["d: too good"]), ("open", [])])
def test_contradictions_name_the_defense(state: str, lines: list[str]) -> None:
    corridor = {"success": 1.0, "low": 0.9, "high": 1.0, "state": state, "sentence": "too good"}
    both = result({**defense("d", "exact"), "bound": {"ceiling": 0.1, "corridor": corridor}}, defense("e", "exact"))
    assert both.contradictions() == lines
    assert both.exit_code() == (ExitCode.CONTRADICTION if lines else ExitCode.DONE)


@pytest.mark.parametrize("word", WORDS)
def test_every_word_brings_about_its_exit_code(word: str) -> None:
    assert result(defense("d", word)).exit_code() == WORDS[word].exit  # type: ignore[index]


def test_what_adversaries_did_about_hidden_things_is_shown_everywhere(tmp_path: Path) -> None:
    hidden = {
        "address": "recipe.learning_rate",
        "how": "cancelled",
        "sentence": "hidden; cancelled by a scale-free likelihood",
    }
    entry = defense("noisy", "detectable")
    entry["adversaries"] = [{**entry["adversaries"][0], "treatments": [hidden]}]
    found = result(entry)
    (treatment,) = found.treatments["noisy"]["adaptive"]
    assert str(treatment) == "recipe.learning_rate: hidden; cancelled by a scale-free likelihood"
    run = Run(tmp_path, found)
    for text in (html(run), markdown(run)):
        assert "recipe.learning_rate" in text
        assert "cancelled by a scale-free likelihood" in text


def test_redaction_removes_every_label(tmp_path: Path) -> None:
    found = Result.load(make(tmp_path / "run"))
    assert {r.label for rows in found.records.values() for r in rows} != {None}
    assert {r.label for rows in found.redacted().records.values() for r in rows} == {None}
