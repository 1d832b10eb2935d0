"""Treatments: what an adversary does about every nuisance that it is not told.

A hidden nuisance is *read off* the release, *cancelled* by a likelihood that is blind to it, *summed out* by a rule
of the density, *optimised* beside the inputs under its law, *enumerated*, or *assumed* at a value, which the ledger
then says. Rules are registered (:func:`rule`) and asked in order; the first that answers wins, and a part of another
package may bring its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from leakgauge.adversary.statistics import are_leaked, have_running
from leakgauge.client import BATCH_STATISTICS, DROPOUT, LABELS, LEARNING_RATE, ORDER
from leakgauge.errors import ObservationError
from leakgauge.laws import Uniform
from leakgauge.priors import BatchNorm, Scaled, Sum
from leakgauge.task import Task
from leakgauge.types import How, Knowledge, Nuisance, Threat, Treatment

if TYPE_CHECKING:
    from leakgauge.adversary.adversary import Adversary
    from leakgauge.adversary.likelihoods import Likelihood


@dataclass(frozen=True)
class Case:
    """An adversary against a task, with what it knows: address → granted or hidden."""

    adversary: Adversary
    task: Task
    knows: Mapping[str, Knowledge]

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """Hidden nuisances that multiply the whole update: a rate of one local step, or its perturbation."""
        if self.task.recipe.local_steps > 1:
            return ()
        return tuple(address for address in self.rates if self.knows[address] == "hidden")

    @property
    def rates(self) -> tuple[str, ...]:
        """Every nuisance that acts through the learning rate."""
        training = self.task.protection.stage("training")
        perturbed = [a for a in self.task.nuisances if a.rpartition(".")[0] in training]
        return tuple(a for a in (LEARNING_RATE, *perturbed) if a in self.task.nuisances)

    @property
    def scale_law(self) -> Uniform | None:
        """The law of the hidden scale, where it is one perturbation with a uniform law; else any positive number."""
        law = self.task.nuisances[self.scales[0]].law if len(self.scales) == 1 else None
        return law if isinstance(law, Uniform) else None

    @cached_property
    def read_off(self) -> frozenset[str]:
        """The nuisances of the update stage that anybody can read off a release."""
        return self.task.visible

    @cached_property
    def hidden_scale(self) -> tuple[Likelihood, How, str] | None:
        """The likelihood of an update of hidden scale, how that treats it, in words; None: it is searched for."""
        if not self.scales:
            return None
        return self.adversary.likelihood.of_hidden_scale(self.task.protection, self.scale_law)


def knowledge(task: Task, threat: Threat | None) -> dict[str, Knowledge]:
    """What a threat says about every nuisance of a task: address → granted or hidden."""
    if not isinstance(task, Task):
        raise ObservationError(
            f"the first argument is a {type(task).__name__}", where="threat", remedy="give a Task, then a Threat"
        )
    if threat is not None and not isinstance(threat, Threat):
        raise ObservationError(
            f"the threat is a {type(threat).__name__}",
            where="threat",
            remedy='give a Threat, as in Threat(labels="known")',
        )
    return dict((threat or Threat()).mapping(task.nuisances))


Rule = Callable[[Case, str, Nuisance], Treatment | None]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    """Register a rule; later ones are asked after earlier ones."""
    RULES.append(function)
    return function


def treatments(case: Case) -> tuple[Treatment, ...]:
    """What is done about every nuisance of the task that is not granted, and which ones are."""
    return tuple(
        next((answer for asked in RULES if (answer := asked(case, address, nuisance)) is not None), _otherwise(address))
        for address, nuisance in case.task.nuisances.items()
    )


def settled(case: Case) -> tuple[Likelihood, tuple[Treatment, ...]]:
    """The likelihood that the treatments ask for, and the treatments."""
    known = case.hidden_scale
    return (case.adversary.likelihood if known is None else known[0]), treatments(case)


@rule
def told(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    """What is granted needs no treatment."""
    if case.knows[address] != "granted":
        return None
    return Treatment(address, "granted", f"granted; {_used(case)}" if address == BATCH_STATISTICS else "granted")


@rule
def batch_statistics(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    """Those that shared buffers give away, or the running ones: a target of the candidate's own, or in their place."""
    if address != BATCH_STATISTICS:
        return None
    if are_leaked(case.task):
        words = f"hidden, but shared running statistics give them away; {_used(case)}"
        return Treatment(address, "read off", words)
    if case.adversary.norms == "fixed":
        return Treatment(address, "assumed", "hidden; the running statistics are used in their place (proxy)")
    toward = compares_statistics(case.adversary.prior) and have_running(case.task)
    drawn = ", drawn toward the running ones" if toward else ""
    return Treatment(address, "optimised", f"hidden; measured on the candidate{drawn} (infer)")


def _used(case: Case) -> str:
    """What is done with the statistics of the private batch, where they are known."""
    if case.adversary.norms == "fixed":
        return "used in place of the candidate's own (exact, eval mode)"
    if compares_statistics(case.adversary.prior):
        return "the target of the candidate's own (exact, train mode)"
    return "not used: the candidate's own are measured"


def compares_statistics(prior: object) -> bool:
    """Whether a prior looks at the statistics of batch norms."""
    if isinstance(prior, Sum):
        return any(map(compares_statistics, prior.terms))
    return compares_statistics(prior.prior) if isinstance(prior, Scaled) else isinstance(prior, BatchNorm)


@rule
def labels(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    if address != LABELS:
        return None
    if case.adversary.labels == "joint":
        return Treatment(address, "optimised", "hidden; searched for beside the inputs, as soft labels")
    return Treatment(address, "read off", "hidden; counted by likelihood from the last layer's gradient")


@rule
def scale(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    """A rate that only scales the update."""
    if address not in case.scales:
        return None
    known = case.hidden_scale
    if known is None:
        return Treatment(address, "optimised", "hidden; searched for beside the inputs")
    return Treatment(address, known[1], f"hidden; {known[2]}")


@rule
def rates(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    """Rates of several local steps act inside the client, which is differentiated through them."""
    if address not in case.rates:
        return None
    return Treatment(address, "optimised", "hidden; searched for beside the inputs, through the local steps")


@rule
def order(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    """A hidden order within one pass only names the examples; over several, the first pass is taken for all."""
    if address != ORDER:
        return None
    return Treatment(address, "assumed", "hidden; every pass over the examples is taken to use one order")


@rule
def visible(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    if address not in case.read_off:
        return None
    return Treatment(address, "read off", "hidden, but anybody can read it off the release")


@rule
def summed_out(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    if not case.adversary.likelihood.sums_out(case.task.protection, address):
        return None
    return Treatment(address, "summed out", "hidden; the density sums over its law")


@rule
def latent(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    """Random numbers of the network: searched for where the adversary weighs their prior, else taken at their mean."""
    if address != DROPOUT and address.rpartition(".")[0] not in case.task.protection.stage("model"):
        return None
    if case.adversary.hidden is not None:
        return Treatment(address, "optimised", "hidden; searched for beside the inputs, under its law")
    return Treatment(address, "assumed", "hidden; taken at the mean of its law")


@rule
def encodings(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
    if address.rpartition(".")[0] not in case.task.protection.stage("input"):
        return None
    return Treatment(address, "assumed", "hidden; the encoding is reconstructed, and taken for the record")


def _otherwise(address: str) -> Treatment:
    """What no rule knows, one of another package included."""
    return Treatment(address, "assumed", "hidden; the update is matched as if this part had changed nothing")


def with_treatment(listed: tuple[Treatment, ...], *changed: Treatment) -> tuple[Treatment, ...]:
    """The same list with some treatments replaced: an attack around the adversary knows better."""
    better = {treatment.address: treatment for treatment in changed}
    return tuple(
        better.get(treatment.address, treatment) if treatment.how != "granted" else treatment for treatment in listed
    )


__all__ = ["RULES", "Case", "compares_statistics", "knowledge", "rule", "settled", "treatments", "with_treatment"]
