"""The two kinds of adversaries that judge a defense: one that ignores it, and one that models it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leakgauge.adversary import Modelled
from leakgauge.study.sections import ADDED, BOTH, Attacks

Settings = Sequence[Modelled | None]
"""What each setting of an adversary models; None where that is not known, since it could not be read."""


def kinds(adversaries: Iterable[Settings]) -> set[Attacks]:
    """Which of the two kinds are listed; a list of settings is of a kind if all of them are.

    Adaptive is what models whatever defense it meets; generic is what models none.
    """
    listed: set[Attacks] = set()
    wanted: dict[Attacks, Modelled] = {"generic": "none", "adaptive": "any"}
    for settings in adversaries:
        listed |= {kind for kind, models in wanted.items() if settings and set(settings) <= {models, None}}
    return listed


def missing(adversaries: Iterable[Settings], leave_out: Iterable[Attacks]) -> dict[str, str]:
    """The adversaries that have to be added, by name: of each kind that is neither listed nor left out."""
    listed = list(adversaries)
    absent = [kind for kind in BOTH if kind not in (*kinds(listed), *leave_out)]
    return {ADDED.format(kind) if listed else kind: BOTH[kind] for kind in absent}
