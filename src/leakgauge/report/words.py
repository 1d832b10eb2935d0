"""The verdict words, for people: what each means, what it does not, and how it looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from leakgauge.report.schema import Word

Tone = Literal["severe", "high", "medium", "low", "none"]
LADDER: tuple[Word, ...] = ("no evidence", "detectable", "recognisable", "exact")
"""Findings, from the least to the worst: what ``--fail-on`` can name."""
INCONCLUSIVE: tuple[Word, ...] = ("too weak", "incomplete", "invalid")
"""Words that say nothing about safety; a gate fails on each."""


@dataclass(frozen=True)
class Meaning:
    """A word's tone (colour), icon (shape, for eyes that do not tell the colours apart), and plain meaning."""

    word: Word
    tone: Tone
    icon: str
    short: str
    plain: str


MEANINGS: dict[Word, Meaning] = {
    m.word: m
    for m in (
        Meaning(
            "exact",
            "severe",
            "octagon",
            "a private record was copied out of the update",
            "At least one private record was recovered to numerical precision. Whoever sees the update holds the "
            "record itself. Treat this set-up as sending the data.",
        ),
        Meaning(
            "recognisable",
            "high",
            "triangle",
            "private records can be recognised",
            "The attack rebuilt at least one private record, or the transformed picture that the client made of it, so "
            "closely that it passes the threshold for recognisable, the audit’s stand-in for “a person would know it”, "
            "and guessing does not explain it. Do not rely on this defense at this setting.",
        ),
        Meaning(
            "detectable",
            "medium",
            "diamond",
            "traces of the records are visible, none was recognisable",
            "Reconstructions are closer to the private records than guessing would be, but none reached the "
            "threshold for recognisable. Information leaks; a stronger attack may make more of it.",
        ),
        Meaning(
            "no evidence",
            "low",
            "circle",
            "these attacks found nothing",
            "These attacks did no better than guessing against this defense, although the same attacks worked "
            "when the defense was switched off. This is not a proof of safety: a stronger attack, or one with "
            "more knowledge, might succeed. Only a bound, where one is given, limits every attack.",
        ),
        Meaning(
            "too weak",
            "none",
            "question",
            "nothing can be concluded: the attacks fail without a defense, too",
            "The attacks did not work even with the defense switched off, so their failure says nothing about the "
            "defense. Do not read this as safe. Give the attacks more steps or more records, or check the "
            "set-up, and run again.",
        ),
        Meaning(
            "incomplete",
            "none",
            "half",
            "nothing can be concluded: part of the audit failed",
            "A planned part of the audit failed, so there is no verdict. Do not read this as safe. The faults are "
            "listed below; the same command finishes the run.",
        ),
        Meaning(
            "invalid",
            "none",
            "cross",
            "nothing can be concluded: the set-up is not your client",
            "The audit could not replay what your real client did, so its numbers are about some other system. Do "
            "not use them. The command leakgauge doctor says which settings differ.",
        ),
    )
}

# a set-up that does not replay spoils everything; a leak that was found stays found, whatever else failed
_WORST: tuple[Word, ...] = (*LADDER[:1], "too weak", "incomplete", *LADDER[1:], "invalid")


def severity(word: Word) -> int:
    """A rank to sort by; high needs attention first."""
    return _WORST.index(word)


def worst(words: Iterable[Word]) -> Word:
    """The one word for several checkpoints: never ``no evidence`` while one of them is inconclusive."""
    return max(words, key=severity)


def fails(word: Word, fail_on: Word) -> bool:
    """Whether a gate at ``fail_on`` fails: at or above it, or inconclusive."""
    return word in INCONCLUSIVE or LADDER.index(word) >= LADDER.index(fail_on)


ENCODINGS = (
    "These defenses let the client train on encodings of its records: transformed pictures, or mixtures of several. So "
    "there are two scores: against the record itself, and against its encoding. An encoding that was found is a leak "
    "even where it could not be undone here: a transformed picture shows its record, and counts as recognisable; a "
    "mixture counts as detectable, and is only as safe as what hides how it was mixed."
)
REACHED = (
    "here every record that reaches the threshold counts, also where a null comes as near, so there may be more than "
    "the verdict counts"
)
METRICS = {
    "ssim": "structural similarity (SSIM): 1 is the same picture, about 0 is unrelated",
    "psnr": "peak signal-to-noise ratio (PSNR) in dB: higher is closer; from 60 dB on no eye can tell the difference",
}
