"""The result in sentences: what a privacy officer reads first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Checkpoint, Defense
from leakgauge.audit.judge.words import INCONCLUSIVE, LEAKS, Word
from leakgauge.report.formats import p_sign


@dataclass(frozen=True)
class Subject:
    """One defense over all checkpoints; ``defense`` is the one that decides its word."""

    name: str
    expression: str
    word: Word
    defense: Defense
    at: Checkpoint
    history: tuple[tuple[Checkpoint, Defense], ...]

    @property
    def bare(self) -> bool:
        """The client without a defense."""
        return self.defense.bare

    @property
    def leaks(self) -> bool:
        """A record, or what shows it, came back."""
        return self.word in LEAKS


def subjects(result: Result) -> list[Subject]:
    """Every defense once, in the order of the spec."""
    return [
        Subject(name, defense.expression, defense.verdict, defense, at, tuple(result.history[name]))
        for name, (at, defense) in result.decisive.items()
    ]


def headline(subjects: Sequence[Subject]) -> str:
    """One sentence about the defenses; the client without one is the yardstick, not a finding."""
    judged = [s for s in subjects if not s.bare] or list(subjects)
    leaks = [s for s in judged if s.leaks]
    traces = [s for s in judged if s.word == "detectable"]
    silent = [s for s in judged if s.word in INCONCLUSIVE]
    n = len(judged)
    if all(s.word == "invalid" for s in judged):
        return "This audit cannot be used: the set-up does not replay your client"
    if all(s.bare for s in judged):
        return _bare(judged[0].word)
    if leaks:
        return f"{_of(len(leaks), n)} {_s(leaks, 'lets', 'let')} private records be recognised"
    if traces:
        return f"{_of(len(traces), n)} {_s(traces, 'lets', 'let')} traces of records through; none was recognisable"
    if silent:
        return f"{_of(len(silent), n)} could not be judged; nothing is known to leak, nothing is known to be safe"
    which = "the defense" if n == 1 else f"any of {n} defenses"
    return f"No evidence of leakage through {which}; this is no proof of safety"


def _bare(word: Word) -> str:
    if word in INCONCLUSIVE:
        return "The client without a defense could not be judged"
    if word == "no evidence":
        return "No evidence of leakage, without any defense; this is no proof of safety"
    leaks = "traces of private records leak" if word == "detectable" else "private records can be recognised"
    return f"Without a defense, {leaks}"


def _of(k: int, n: int) -> str:
    if n == 1:
        return "The defense"
    return f"{k} of {n} defenses" if k < n else f"All {n} defenses"


def audited(subjects: Sequence[Subject]) -> str:
    """What the headline counts, and what it does not: ``4 defenses, and none, the client without one``."""
    bare = [s.name for s in subjects if s.bare]
    n = len(subjects) - len(bare)
    defenses = f"{n} defense{'' if n == 1 else 's'}"
    if not bare:
        return defenses
    yardstick = f"“{'”, “'.join(bare)}”, the client without a defense"
    return f"{defenses}, and as the yardstick {yardstick}" if n else yardstick


def _s(subjects: Sequence[Subject], one: str, many: str) -> str:
    return one if len(subjects) == 1 else many


def control(result: Result) -> str:
    """Did the adversaries work at all?"""
    controls = [d.control for _, d in result.each() if d.control is not None]
    records = max((len(d.records) for _, d in result.each()), default=0)
    if not controls:
        return "The positive control did not finish: whether the attacks work at all is not known."
    names = dict.fromkeys(name for c in controls for name in c.adversaries)
    idle = [name for name in names if not any(c.adversaries[name].works for c in controls if name in c.adversaries)]
    p, fewest = max(c.p for c in controls), min(controls, key=lambda c: c.recognised)
    many = f"{fewest.recognised} of {records if fewest.records is None else fewest.records} records"
    if len(idle) == len(names):
        return f"The attacks do not work: even without a defense they recognise {many} (p {p_sign(p)})."
    fails = "fails" if len(idle) == 1 else "fail"
    but = f" {' and '.join(idle)} {fails} even then, so finding nothing proves nothing." if idle else ""
    if not all(any(a.works for a in c.adversaries.values()) for c in controls):
        return f"The attacks work at some checkpoints only; elsewhere they recognise nothing without a defense.{but}"
    return f"The attacks work: without a defense they recognise {many} (p {p_sign(p)}).{but}"
