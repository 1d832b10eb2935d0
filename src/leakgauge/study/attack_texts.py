"""The text of an attack, read: what it names has to be called as an attack is."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import cast

from leakgauge.adversary import Attack
from leakgauge.attacks.choosing import Chooser
from leakgauge.attacks.staged import members
from leakgauge.errors import DomainError, LeakgaugeError, brief
from leakgauge.expr import Reading, described, read

_REMEDY = "name one, like adaptive(steps=300); see `leakgauge list attack`"


def read_attack(text: str, where: str, *, own_code: bool = True) -> Reading:
    """What the text of an attack says, with all its faults; ``own_code=False`` imports nothing of the user's."""
    if isinstance(text, str) and not text.strip():
        return Reading(text, faults=(DomainError("there is no attack", where=where, remedy=_REMEDY),))
    reading = read(text, "attack", where=where, own_code=own_code)
    if reading.faults or (reading.value is None and reading.own):
        return reading
    faults = _faults(reading.value, where)
    return replace(reading, value=None if faults else reading.value, faults=tuple(faults))


def attack_of(text: str, where: str) -> Attack:
    """The attack that a text names."""
    return cast("Attack", read_attack(text, where).get())


def _faults(value: object, where: str) -> list[LeakgaugeError]:
    try:
        inspect.signature(value).bind(None, [], seed=0, progress=None)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return [DomainError(f"{brief(described(value))} is no attack", where=where, remedy=_REMEDY)]
    return []


def nested_chooser(attack: Attack) -> Chooser | None:
    """An attack inside this one that would have to choose its settings first, which only a whole adversary does."""
    return next((one for one in members(attack)[1:] if isinstance(one, Chooser)), None)


__all__ = ["attack_of", "nested_chooser", "read_attack"]
