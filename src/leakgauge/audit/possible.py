"""Which adversaries cannot attack here: said as problems of the spec, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from leakgauge.adversary import Adversary, Attack
from leakgauge.adversary.likelihoods import Matching
from leakgauge.attacks.staged import posterior
from leakgauge.audit.attacking import observed, searching
from leakgauge.audit.plan import IDENTITY
from leakgauge.defenses import Protection
from leakgauge.errors import LeakgaugeError, NoDensityError, brief
from leakgauge.study.sections import Problem, SpecError
from leakgauge.study.study import Study


@dataclass
class Faults:
    """What went wrong by adversary, each fault once with the defenses under which it did."""

    study: Study
    by_fault: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def add(self, settings: tuple[Attack, ...], defense: Protection, fault: Exception) -> None:
        """Note what an attack raised; the words of an exception that is not ours come with its type."""
        what, remedy = f"{type(fault).__name__}: {fault}", ""
        if isinstance(fault, LeakgaugeError):
            what = f"{fault.where}: {fault.what}" if fault.where else fault.what
            remedy = fault.remedy or ""
        key = next((f"adversaries.{n}" for n, own in self.study.adversaries.items() if own == settings), "adversaries")
        if repr(defense) == repr(IDENTITY) and isinstance(fault, NoDensityError):  # no defense of the user's to change
            remedy = "use adaptive(), which takes another likelihood where there is no defense"
        named = [name for name, how in self.study.defenses.items() if repr(how) == repr(defense)]
        under = self.by_fault.setdefault((key, brief(" ".join(what.split()), 300), remedy), [])
        place = named[0] if named else "no defense (the positive control)"
        if place not in under:
            under.append(place)

    def refuse(self) -> None:
        """Raise all of them at once, if there are any."""
        problems = [
            Problem(self.study.file, key, f"under {', '.join(places)}: {what}", remedy or "use another adversary")
            for (key, what, remedy), places in self.by_fault.items()
        ]
        if problems:
            raise SpecError(problems)


def refuse_impossible(study: Study) -> None:
    """Evaluate each likelihood that depends on the defense once, under every listed defense; raise what cannot be.

    One that lacks only its positive control may run: scores and nulls are there, and the verdict says what is missing.
    """
    faults = Faults(study)
    defenses = {repr(how): how for how in study.defenses.values()}
    for settings in study.adversaries.values():
        for attack in settings:
            if isinstance(attack, Adversary) and _may_not_exist(attack):
                for defense in defenses.values():
                    try:
                        _evaluate(study, attack, defense)
                    except LeakgaugeError as fault:
                        faults.add(settings, defense, fault)
    faults.refuse()


def _may_not_exist(adversary: Adversary) -> bool:
    """Matching losses compare whatever there is, unless they name layers."""
    likelihood = adversary.likelihood
    return not isinstance(likelihood, Matching) or bool(likelihood.drop or likelihood.weights)


def _evaluate(study: Study, attack: Adversary, defense: Protection) -> None:
    """The log posterior of the attack's start, on one update."""
    task, size = study.under(defense), study.task.recipe.batch
    records = study.records if defense.input else study.records[:size]  # what a client mixes takes several
    tried = searching(attack, study.threat)
    assert isinstance(tried, Adversary)
    posterior(tried, task, observed(task, records, study.threat, seed=study.seed, rounds=1)[:1])
