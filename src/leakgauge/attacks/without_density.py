"""Against protections that have no density of their own: what is near to them, a simulation, or a cosine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from leakgauge.adversary import Adversary, Reconstruction, cosine, density
from leakgauge.adversary.joining import joined
from leakgauge.adversary.simulation import Simulation, StandIn, simulate_whole
from leakgauge.adversary.simulation.labels import labels_by_simulation
from leakgauge.attacks.adapting import hint_of
from leakgauge.attacks.believed import beliefs, with_received_norm
from leakgauge.attacks.calling import Options
from leakgauge.attacks.circumstances import is_opaque, simulation_sentences
from leakgauge.client import LABELS
from leakgauge.errors import AssumptionWarning, NoDensityError, NotModelledWarning
from leakgauge.observation import Observation
from leakgauge.task import Task


def by_belief(
    adversary: Adversary, task: Task, observations: Sequence[Observation], options: Options, reason: NoDensityError
) -> Reconstruction | None:
    """The attack under the density of what is nearest to the protection; None where nothing near has one, either."""
    for assumed in beliefs(task.protection.update, granted_throughout(observations)):
        try:
            reconstruction = replace(adversary, likelihood=density(assumed=assumed))(task, observations, **options)
        except NoDensityError:
            continue
        warnings.warn(f"adaptive() assumes {assumed!r}: {reason}", AssumptionWarning, stacklevel=5)
        return reconstruction
    return None


def granted_throughout(observations: Sequence[Observation]) -> frozenset[str]:
    """The addresses that are granted in every round of every observation."""
    rounds = [frozenset(one.granted) for observation in observations for one in observation.rounds]
    return frozenset.intersection(*rounds) if rounds else frozenset()


def by_simulation(
    adversary_of: Callable[[Task], Adversary],
    task: Task,
    observations: Sequence[Observation],
    options: Options,
    reason: NoDensityError,
) -> Reconstruction | NoDensityError:
    """The attack on simulated releases of the whole chain; what stands in the way, where that is not possible."""
    simulation = simulate_whole(task)
    if simulation.unmodelled:
        part, why = simulation.unmodelled[0]
        return NoDensityError(f"{part!r} is not modelled: {why}")
    sentence = simulation_sentences(simulation)[0]
    warnings.warn(f"adaptive(): {sentence}, since {reason}", AssumptionWarning, stacklevel=5)
    own = adversary_of(simulation.task)
    return own(simulation.task, labelled(simulation, observations, own.labels), **options)


def by_cosine(
    plain: Adversary, task: Task, observations: Sequence[Observation], options: Options, reason: NoDensityError
) -> Reconstruction:
    """A cosine of what is not covered up; the warning says whether all parts are modelled by that."""
    category = AssumptionWarning if models_all_by_leaving_out(task) else NotModelledWarning
    warnings.warn(f"adaptive() falls back to a cosine: {reason}", category, stacklevel=5)
    return replace(plain, likelihood=cosine(drop=covered_up(task)))(task, observations, **options)


def covered_up(task: Task) -> tuple[str, ...]:
    """The tensors to leave out, since nothing models what was done to them."""
    return tuple(name for part in task.protection.chain.parts for name in hint_of(part).drop)


def models_all_by_leaving_out(task: Task) -> bool:
    """To leave out what a part covered up models that part, but no other."""
    return bool(covered_up(task)) and not any(is_opaque(part) for part in task.protection.chain.parts)


def labelled(simulation: Simulation, observations: Sequence[Observation], labels: str) -> list[Observation]:
    """The observations of the simulated task; the labels that a stand-in hides come from simulated releases."""
    before = simulation.observed(observations)
    hidden = labels == "inferred" and any(one.labels is None for one in before)
    stands = any(isinstance(part, StandIn) for part in simulation.task.protection.chain.parts)
    if not stands or not hidden or any(one.batch > 1 for one in before):
        return before
    inferred = labels_by_simulation(simulation.task, before)
    return [one.given(LABELS, label) for one, label in zip(before, inferred, strict=True)]


def by_received_norm(
    adversary: Adversary, task: Task, observations: Sequence[Observation], options: Options
) -> Reconstruction:
    """Each observation under the clipping bound that its own norm suggests."""
    reconstructions = []
    for one in observations:
        assumed = with_received_norm(task.protection.update, one.rounds[0].observed)
        changed = assumed != task.protection.update
        own = replace(adversary, likelihood=density(assumed=assumed)) if changed else adversary
        reconstructions.append(own(task, [one], **options))
    return joined(reconstructions, range(len(reconstructions)))


__all__ = [
    "by_belief",
    "by_cosine",
    "by_received_norm",
    "by_simulation",
    "granted_throughout",
    "labelled",
    "models_all_by_leaving_out",
]
