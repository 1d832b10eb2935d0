"""The words of a verdict, in one table: what each means, how bad it is, what a gate and the exit code make of it.

============ ===================================================================================================
exact        a record was recovered to numerical precision
recognisable above the null, and a record above the leak threshold
detectable   above the null
no evidence  not above the null, although without the defense the same adversaries recognise records
too weak     they do not, or none of them models the defense: nothing can be concluded
incomplete   a planned cell failed
invalid      the set-up does not replay
============ ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from leakgauge.errors import DomainError, ExitCode

Word = Literal["exact", "recognisable", "detectable", "no evidence", "too weak", "incomplete", "invalid"]
Tone = Literal["severe", "high", "medium", "low", "none"]
TONES: dict[Tone, str] = {
    "severe": "#7d1128",
    "high": "#b03a05",
    "medium": "#765700",
    "low": "#0b5c8f",
    "none": "#575263",
}
"""The colour of each tone on a light page, as in the report's style sheet; white text on it is legible."""


@dataclass(frozen=True)
class Entry:
    """One word.

    ``finding`` is its rung among what attacks can find, None for a word that says nothing about safety: a gate fails on
    each of those. ``severity`` ranks all words: a leak that was found stays found whatever else failed, and a set-up
    that does not replay spoils everything. ``tone`` is its colour, ``icon`` its shape, for eyes that do not tell
    colours apart; ``exit`` the exit code that it brings about without any gate.
    """

    word: Word
    finding: int | None
    severity: int
    exit: ExitCode
    tone: Tone
    icon: str
    short: str
    plain: str


WORDS: dict[Word, Entry] = {
    entry.word: entry
    for entry in (
        Entry(
            "exact",
            3,
            5,
            ExitCode.DONE,
            "severe",
            "octagon",
            "a private record was copied out of the update",
            "At least one private record was recovered to numerical precision. Whoever sees the update holds the "
            "record itself. Treat this set-up as sending the data.",
        ),
        Entry(
            "recognisable",
            2,
            4,
            ExitCode.DONE,
            "high",
            "triangle",
            "private records can be recognised",
            "The attack rebuilt at least one private record, or the transformed version that the client made of it, so "
            "closely that it passes the threshold for recognisable, the audit’s stand-in for “a person would know it”, "
            "and guessing does not explain it. Do not rely on this defense at this setting.",
        ),
        Entry(
            "detectable",
            1,
            3,
            ExitCode.DONE,
            "medium",
            "diamond",
            "traces of the records are visible, none was recognisable",
            "Reconstructions are closer to the private records than guessing would be, but none reached the "
            "threshold for recognisable. Information leaks; a stronger attack may make more of it.",
        ),
        Entry(
            "no evidence",
            0,
            0,
            ExitCode.DONE,
            "low",
            "circle",
            "these attacks found nothing",
            "These attacks did no better than guessing against this defense, although the same attacks worked "
            "when the defense was switched off. This is not a proof of safety: a stronger attack, or one with "
            "more knowledge, might succeed. Only a bound, where one is given, limits every attack.",
        ),
        Entry(
            "too weak",
            None,
            1,
            ExitCode.DONE,
            "none",
            "question",
            "nothing can be concluded: the attacks fail without the defense, too, or do not model it",
            "The attacks did not work even with the defense switched off, or they ignore what it does, so their "
            "failure says nothing about the defense. Do not read this as safe. Give the attacks more steps or more "
            "records, or an attack that models the defense, or check the set-up, and run again.",
        ),
        Entry(
            "incomplete",
            None,
            2,
            ExitCode.INCOMPLETE,
            "none",
            "half",
            "nothing can be concluded: part of the audit failed",
            "A planned part of the audit failed, so there is no verdict. Do not read this as safe. The faults are "
            "listed below; the same command finishes the run.",
        ),
        Entry(
            "invalid",
            None,
            6,
            ExitCode.INVALID,
            "none",
            "cross",
            "nothing can be concluded: the set-up is not your client",
            "The audit could not replay what your real client did, so its numbers are about some other system. Do "
            "not use them. The command leakgauge doctor says which settings differ.",
        ),
    )
}
LEAKS: tuple[Word, ...] = ("exact", "recognisable")
"""A record, or what shows it, came back."""
_BY_FINDING = sorted((e.finding, e.word) for e in WORDS.values() if e.finding is not None)
LADDER: tuple[Word, ...] = tuple(word for _, word in _BY_FINDING)
"""Findings, from the least to the worst; ``--fail-on`` can name all but the first."""
INCONCLUSIVE: tuple[Word, ...] = tuple(word for word, entry in WORDS.items() if entry.finding is None)
"""Words that say nothing about safety; a gate fails on each."""


def severity(word: Word) -> int:
    """A rank to sort by; high needs attention first."""
    return WORDS[word].severity


def worst(words: Iterable[Word]) -> Word:
    """The one word for several checkpoints: never ``no evidence`` while one of them is inconclusive."""
    return max(words, key=severity)


def at_least(word: Word, least: Word) -> bool:
    """Whether a word is a finding at least as bad as another."""
    rung, needed = WORDS[word].finding, WORDS[least].finding
    return rung is not None and needed is not None and rung >= needed


def fails(word: Word, fail_on: Word) -> bool:
    """Whether a gate at ``fail_on`` fails: at or above it, or inconclusive."""
    if fail_on not in LADDER[1:]:
        raise DomainError(f"a gate is one of {LADDER[1:]}, got {fail_on!r}", where="fail_on")
    return word in INCONCLUSIVE or at_least(word, fail_on)
