"""What a case is, what an answer is worth, and how all are run."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from leakgauge.errors import LeakgaugeError

Worth = Literal["right", "wrong-safe", "wrong-alarm", "unclear", "crash"]
WORTHS: tuple[Worth, ...] = ("right", "wrong-safe", "wrong-alarm", "unclear", "crash")

LEAK = ("exact", "recognisable", "detectable", "above noise")
SAFE = ("no evidence", "no better than noise")
REFUSED = "refused"


@dataclass(frozen=True)
class Case:
    """A set-up of which it is known by construction whether it leaks; ``ask`` returns leakgauge's word on it."""

    name: str
    leaks: bool
    ask: Callable[[], str]


@dataclass(frozen=True)
class Answer:
    """What leakgauge said of a case, and what that is worth."""

    case: Case
    word: str
    worth: Worth
    seconds: float


def worth(leaks: bool, word: str) -> Worth:
    """A leak that is called safe is the worst answer; what concludes nothing is unclear, and never right."""
    if word in LEAK:
        return "right" if leaks else "wrong-alarm"
    if word in SAFE:
        return "wrong-safe" if leaks else "right"
    return "unclear"


def answered(case: Case) -> Answer:
    """Ask about one case. A refusal in a sentence is unclear; anything else that is raised is a crash."""
    begun = time.monotonic()
    try:
        word = case.ask()
        value = worth(case.leaks, word)
    except LeakgaugeError as refusal:
        word, value = f"{REFUSED}: {refusal}", "unclear"
    except Exception:
        word, value = traceback.format_exc(limit=-3), "crash"
    return Answer(case, word, value, time.monotonic() - begun)


def counted(answers: Iterable[Answer]) -> dict[Worth, int]:
    """How many answers are worth what."""
    counts = Counter(answer.worth for answer in answers)
    return {name: counts[name] for name in WORTHS}
