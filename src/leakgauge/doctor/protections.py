"""Which of the listed defenses did the client use?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.defenses import Protection
from leakgauge.doctor.case import Case
from leakgauge.doctor.defended import Defended
from leakgauge.doctor.rivals import Examined, accepts, examined
from leakgauge.doctor.setup import Setup

BLURRED = 10.0
"""A defense blurs where our own draws differ by this many tolerances: no client without it is told apart exactly."""


@dataclass(frozen=True)
class Trial:
    """One defense, and what it makes of the update."""

    name: str
    protection: Protection
    examined: Examined
    blurred: bool

    def differs(self, believed: Setup) -> tuple[str, ...]:
        return self.examined.setup.differs(believed)


def testable(how: Protection) -> bool:
    """Whether a client under it can be replayed: its records and its model are those that we have."""
    return not how.input and not how.model


def trials(case: Case, defenses: Mapping[str, Protection]) -> tuple[Trial, ...]:
    """What defenses make of the update, those first that accept the believed settings; others only if none does.

    A defense that does not fit the model is left out.
    """
    clients = {name: Defended(case.replayer, how) for name, how in defenses.items()}
    clients = {name: defended for name, defended in clients.items() if defended.runs(case.believed)}
    accepted = [name for name, defended in clients.items() if accepts(case, defended)]
    tried = [_trial(case, name, clients[name]) for name in accepted]
    if not any(trial.examined.fits and not trial.examined.changes for trial in tried):
        tried += [_trial(case, name, defended) for name, defended in clients.items() if name not in accepted]
    return tuple(tried)


def _trial(case: Case, name: str, defended: Defended) -> Trial:
    result = examined(case, defended)
    blurred = result.expected > BLURRED * case.replayer.tolerance(result.setup)
    return Trial(name, defended.protection, result, blurred)


def best(tried: Sequence[Trial]) -> Trial | None:
    """The defense that fits with the fewest other settings, of several the likeliest; None where none fits."""
    fitting = [trial for trial in tried if trial.examined.fits]
    if not fitting:
        return None
    believed = min(len(trial.examined.changes) for trial in fitting)
    plain = [trial for trial in fitting if len(trial.examined.changes) == believed]
    return min(plain, key=lambda trial: trial.examined.misfit)
