"""A number passes because it meets its bar, and for no other reason."""

from __future__ import annotations

import dataclasses
import math

import pytest

from evidence import Bar, Measurement, Number, above, at_least, at_most, below, exactly, numbers, within
from evidence.rows import Row
from evidence.runner import attempt
from evidence.state import read_number, state
from evidence.store import plain
from tests.evidence.fakes import FAKES


@pytest.mark.parametrize(
    ("bar", "meeting", "missing"),
    [
        (at_least(2), (2, 3, math.inf), (1.9, -math.inf, math.nan, "2")),
        (above(2), (2.1,), (2, math.nan)),
        (at_most(2), (2, -5.0), (2.1, math.nan, "not installed")),
        (below(2), (1.9,), (2, math.nan)),
        (exactly(0), (0, 0.0), (1e-300, math.nan)),
        (within(1.5, 19.95), (18.5, 21.4), (18.4, 21.5, math.nan)),
    ],
)
def test_bars(bar: Bar, meeting: tuple[float | str, ...], missing: tuple[float | str, ...]) -> None:
    assert [Number(value, bar).meets for value in meeting] == [True] * len(meeting)
    assert [Number(value, bar).meets for value in missing] == [False] * len(missing)


def test_a_measurement_passes_if_every_number_meets_its_own_bar() -> None:
    assert Measurement(numbers({"a": 1.0, "b": 0.01}, bars=at_most(1))).passed is True
    assert Measurement(numbers({"a": 1.0, "b": 0.076}, bars={"b": at_most(0.05)})).passed is False
    assert Measurement(numbers({"a": 0.00003, "b": 0.076}, bars=at_most(0.05))).passed is False
    assert Measurement({"a": Number(1.0)}).passed is None
    assert "passed" not in {field.name for field in dataclasses.fields(Measurement)}


def test_measurements_guard_themselves() -> None:
    with pytest.raises(ValueError, match="does not hold"):
        Number(3.0, interval=(1.0, 2.0))
    with pytest.raises(ValueError, match="at least one number"):
        Measurement({})
    with pytest.raises(ValueError, match="'gian', which is none of the values: gain"):
        numbers({"gain": 3.0}, bars={"gian": at_least(2)})
    with pytest.raises(ValueError, match="'gian'"):
        numbers({"gain": 3.0}, {"gian": (1.0, 4.0)})
    with pytest.raises(ValueError, match="one of >=, >, <=, <, ==, within"):
        Bar("!=", 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance of at least 0"):
        within(-1.0, of=2.0)


@pytest.mark.parametrize("value", [1.5, -math.inf, math.nan, 7, "not installed"])
def test_a_number_survives_the_store(value: float | str) -> None:
    number = Number(value, within(0.5, 1.25), (1.0, 2.0) if value == 1.5 else None)
    again = read_number(plain(dataclasses.asdict(number)))
    assert repr(again) == repr(number)
    assert again.meets is (value == 1.5)


ROW = Row("attacks", "first", "a claim", "the bar", ("a",))
STORED = {"bar": "the bar", "fingerprint": "now", "numbers": {"x": {"value": 0.076, "bar": plain(vars(at_most(0.05)))}}}


def test_a_file_cannot_claim_to_pass() -> None:
    assert state(ROW, {**STORED, "passed": True}, "now").word == "miss"
    without = {**STORED, "passed": True, "value": 0.076, "numbers": None}
    assert state(ROW, without, "now").word == "measure anew"
    assert not state(ROW, without, "now").current


def test_a_result_of_another_bar_is_to_be_measured_anew() -> None:
    assert state(dataclasses.replace(ROW, bar="a higher bar"), STORED, "now").word == "measure anew"


def test_age() -> None:
    assert state(ROW, STORED, "now").current
    for fingerprints in (["later"], []):  # none: the check cannot be loaded
        assert state(ROW, STORED, *fingerprints).old
        assert not state(ROW, STORED, *fingerprints).current
    assert state(ROW, {**STORED, "executed": "as before"}, "later", "as before").current
    assert state(ROW, {**STORED, "executed": "as before"}, "later", "otherwise").old
    assert not state(ROW, None, "now").current
    assert state(ROW, {**STORED, "error": "OSError"}, "now").word == "crashed"


def test_what_a_check_returns_is_stored_with_its_bars(tmp_path) -> None:
    outcome = attempt(FAKES["fake_bad"], tmp_path)
    assert outcome["numbers"]["low"] == {"value": 0.076, "bar": plain(vars(at_least(0.5))), "interval": None}
    assert "passed" not in outcome
