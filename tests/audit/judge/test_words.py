"""The words of a verdict: one table, and everything that follows from it."""

from __future__ import annotations

from importlib.resources import files
from typing import get_args

from leakgauge.audit.judge.words import INCONCLUSIVE, LADDER, LEAKS, TONES, WORDS, Word, at_least, fails, worst


def test_the_table_is_complete_and_ranks_every_word_once() -> None:
    assert set(WORDS) == set(get_args(Word))
    assert {entry.word for entry in WORDS.values()} == set(WORDS)
    assert sorted(entry.severity for entry in WORDS.values()) == list(range(len(WORDS)))
    assert LADDER == ("no evidence", "detectable", "recognisable", "exact")
    assert set(INCONCLUSIVE) | set(LADDER) == set(WORDS)
    assert set(LEAKS) < set(LADDER)


def test_worse_findings_are_more_severe_and_nothing_is_milder_than_no_evidence() -> None:
    ranks = [WORDS[word].severity for word in LADDER]
    assert ranks == sorted(ranks)
    assert all(worst(["no evidence", word]) == word for word in WORDS)
    assert worst(["exact", "incomplete"]) == "exact"
    assert worst(["exact", "invalid"]) == "invalid"


def test_a_gate_fails_at_its_word_above_it_and_where_nothing_is_known() -> None:
    for i, gate in enumerate(LADDER[1:], start=1):
        assert [fails(word, gate) for word in LADDER] == [rung >= i for rung in range(len(LADDER))]
        assert all(fails(word, gate) for word in INCONCLUSIVE)
    assert not at_least("invalid", "no evidence")


def test_colours_are_those_of_the_style_sheet() -> None:
    sheet = files("leakgauge.report").joinpath("page", "style.css").read_text(encoding="utf-8")
    light = sheet.partition("@media")[0]
    assert all(f"--{tone}: {colour};" in light for tone, colour in TONES.items())
