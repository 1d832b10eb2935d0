"""What answers are worth, that the kit is balanced, and some of its cases; the slow test asks about all."""

from __future__ import annotations

import pytest

from leakgauge.errors import LeakgaugeError
from leakgauge.testing.red_team import WORTHS, Case, Worth, answered, counted, every, from_the_docs, worth

CASES = {case.name: case for case in every()}
QUICK = ("table, own part", "docs, table", "docs, drowned, table")


@pytest.mark.parametrize(
    ("leaks", "word", "value"),
    [
        (True, "exact", "right"),
        (True, "detectable", "right"),
        (True, "above noise", "right"),
        (False, "recognisable", "wrong-alarm"),
        (True, "no evidence", "wrong-safe"),
        (True, "no better than noise", "wrong-safe"),
        (False, "no evidence", "right"),
        (True, "too weak", "unclear"),
        (False, "too weak", "unclear"),
        (False, "invalid", "unclear"),
    ],
)
def test_what_an_answer_is_worth(leaks: bool, word: str, value: Worth) -> None:
    assert worth(leaks, word) == value


def test_a_refusal_is_unclear_and_a_traceback_a_crash() -> None:
    def refuse() -> str:
        raise LeakgaugeError("cannot be audited")

    def break_down() -> str:
        raise ZeroDivisionError("a fault of ours")

    refusal, crash = (answered(Case("it", True, ask)) for ask in (refuse, break_down))
    assert (refusal.worth, crash.worth) == ("unclear", "crash")
    assert "cannot be audited" in refusal.word
    assert "a fault of ours" in crash.word
    assert counted([refusal, crash, crash]) == {**dict.fromkeys(WORTHS, 0), "unclear": 1, "crash": 2}


def test_the_kit_has_sixty_cases_of_both_kinds() -> None:
    cases, from_docs = every(), list(from_the_docs.cases())
    assert len(CASES) == len(cases) >= 60, "names are unique"
    assert len(from_docs) >= 30
    assert sum(case.leaks for case in from_docs) * 2 == len(from_docs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_quick_cases_are_answered_right(name: str) -> None:
    answer = answered(CASES[name])
    assert answer.worth == "right", answer.word


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(CASES))
def test_no_case_is_called_safe_wrongly_or_crashes(name: str) -> None:
    """False alarms are counted together, against their level, by the evidence check ``red_team``."""
    answer = answered(CASES[name])
    assert answer.worth not in ("wrong-safe", "crash"), answer.word
