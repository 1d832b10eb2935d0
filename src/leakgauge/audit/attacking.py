"""The adversary's side of a cell: what it observes in each arm, and what its attack makes of that."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace

from torch import Tensor

from leakgauge.adversary import Attack, Reconstruction, nulls
from leakgauge.audit.cells import Arm
from leakgauge.client import LABELS
from leakgauge.errors import AssumptionWarning, NotModelledWarning, ObservationError
from leakgauge.expr import described
from leakgauge.observation import Observation, observe
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Progress, Records, Threat, Treatment

ANOTHER = 5
"""Tells the draws of another record's client from those of the private one."""


class NoAnswerError(ObservationError):
    """An attack that returned something else than one guess per update in the shape of the records."""


@dataclass(frozen=True)
class Assumed:
    """What an attack had to assume, a sentence each, and which of them say that it did not model the defense."""

    sentences: list[str]
    unmodelled: list[str]


def observed(task: Task, records: Records, threat: Threat, *, seed: int, rounds: int) -> list[Observation]:
    """What the adversary sees of these records, under the grants that this defense has."""
    return observe(task, records, threat=threat.about(task.nuisances), seed=seed, rounds=rounds)


def observed_in(
    arm: Arm, task: Task, private: Records, others: Records, threat: Threat, *, seed: int, noise: int, rounds: int
) -> list[Observation]:
    """What the adversary gets in an arm; labels that are granted are the private records' in every arm.

    Another record's client draws its own noise: with the same noise in both arms their difference would show what noise
    covers from everybody. Only an input stage draws alike, for its grants belong to the encodings that are scored.
    """
    source = others if arm == "another" else private
    own = seed_of(seed, ANOTHER) if arm == "another" and not task.protection.input else seed
    observations = observed(task, source, threat, seed=own, rounds=rounds)
    if arm == "another" and observations[0].labels is not None:
        granted = batches(private.labels, task.recipe.batch)
        observations = [one.given(LABELS, labels) for one, labels in zip(observations, granted, strict=True)]
    return nulls.noise(observations, seed=noise) if arm == "noise" else observations


def attacked(
    attack: Attack,
    task: Task,
    observations: list[Observation],
    threat: Threat,
    *,
    seed: int,
    progress: Progress | None,
) -> tuple[Reconstruction, Assumed]:
    """The reconstruction, and what the attack had to assume or has to say of itself."""
    attack = searching(attack, threat)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", AssumptionWarning)
        reconstruction = _checked(attack(task, observations, seed=seed, progress=progress), attack, task, observations)
    for one in raised:
        if not issubclass(one.category, AssumptionWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    assumptions = sorted({*_sentences(raised, AssumptionWarning), *reconstruction.notes})
    return reconstruction, Assumed(assumptions, _sentences(raised, NotModelledWarning))


def _sentences(raised: Sequence[warnings.WarningMessage], kind: type[Warning]) -> list[str]:
    return sorted({str(one.message) for one in raised if issubclass(one.category, kind)})


def _checked(answer: object, attack: Attack, task: Task, observations: Sequence[Observation]) -> Reconstruction:
    """What an attack returned, if it is one guess per update in the shape of the records."""
    if not isinstance(answer, Reconstruction):
        raise NoAnswerError(
            f"returned a {type(answer).__name__}",
            where=described(attack),
            remedy="return a leakgauge.Reconstruction(inputs, labels, log_posterior)",
        )
    wanted = (len(observations), task.recipe.batch, *task.domain.shape)
    if tuple(answer.inputs.shape) != wanted:
        raise NoAnswerError(
            f"returned inputs of shape {tuple(answer.inputs.shape)}",
            where=described(attack),
            remedy=f"give {wanted}: updates, records of a batch, the shape of a record",
        )
    return answer


def searching(attack: Attack, threat: Threat) -> Attack:
    """The attack as the threat wants hidden labels to be treated: searched for, by attacks that can."""
    if threat.labels != "joint" or not is_dataclass(attack) or "labels" not in {f.name for f in fields(attack)}:
        return attack
    joint: Attack = replace(attack, labels="joint")
    return joint


def treated(attack: Attack, task: Task, threat: Threat) -> list[dict[str, str]]:
    """What the attack does about every nuisance, as plain JSON; nothing where it does not say."""
    treatments = getattr(searching(attack, threat), "treatments", None)
    if treatments is None:
        return []
    listed: Sequence[Treatment] = treatments(task, threat.about(task.nuisances))
    return [asdict(treatment) for treatment in listed]


def clients_seed(seed: int, first: int) -> int:
    """The seed of everything random that clients do, from the number of their first update."""
    return seed_of(seed, first)


def batches(values: Tensor, size: int) -> Tensor:
    """``[n·B, …]`` as ``[n, B, …]``."""
    grouped: Tensor = values.unflatten(0, (-1, size))
    return grouped
