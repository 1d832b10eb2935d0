"""Rounds that differ in nothing but Gaussian noise: their mean says all that they say together.

A client whose update is a function of its records alone sends ``o_r = u + σ ε_r`` in every round at the same weights.
The mean is sufficient: ``Σ_r log N(o_r; u, σ²) = log N(ō; u, σ²/R)`` but for what does not depend on u. So R rounds
cost an attack as much as one, and what looks at an update alone (labels, its norm) sees the smaller noise as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.adversary.joining import joined
from leakgauge.client import LABELS, LEARNING_RATE
from leakgauge.defenses import Gaussian, UpdatePart, parts_of
from leakgauge.defenses.update import Chain
from leakgauge.defenses.update.chain import is_noise
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Value

Attack = Callable[[Task, Sequence[Observation]], Reconstruction]


def by_means(task: Task, observations: Sequence[Observation], attack: Attack) -> Reconstruction:
    """Attack every observation whose rounds can be averaged by their mean, the others as they are."""
    places: dict[int, list[int]] = {}
    for place, one in enumerate(observations):
        places.setdefault(len(one.rounds) if averages(task, one) else 1, []).append(place)
    if set(places) <= {1}:
        return attack(task, observations)
    parts = [
        _noted(
            task,
            rounds,
            attack(with_means(task, rounds), [_mean(observations[i]) if rounds > 1 else observations[i] for i in some]),
        )
        for rounds, some in places.items()
    ]
    order = [place for some in places.values() for place in some]
    return joined(parts, [order.index(place) for place in range(len(observations))])


def _noted(task: Task, rounds: int, reconstruction: Reconstruction) -> Reconstruction:
    """With a sentence that explains the noise which other notes may name."""
    if rounds == 1:
        return reconstruction
    last, less = (parts_of(one.protection.update)[-1] for one in (task, with_means(task, rounds)))
    note = f"{rounds} rounds are attacked by their mean: {last!r} becomes {less!r}"
    return replace(reconstruction, notes=(*reconstruction.notes, note))


def averages(task: Task, observation: Observation) -> bool:
    """Whether nothing but Gaussian noise differs between the rounds of an observation."""
    *before, last = parts_of(task.protection.update) or (None,)
    first, *others = observation.rounds
    earlier = (*task.protection.input, *task.protection.model, *task.protection.training)
    return (
        bool(others)
        and isinstance(last, Gaussian)
        and last.std > 0
        and not any(is_noise(part) or part.nuisances for part in before)
        and not earlier
        and set(task.nuisances) <= {LABELS, LEARNING_RATE}
        and all(_alike(first, other) for other in others)
    )


def with_means(task: Task, rounds: int) -> Task:
    """The task whose noise is that of a mean of so many rounds."""
    if rounds == 1:
        return task
    *before, last = parts_of(task.protection.update)
    assert isinstance(last, Gaussian)
    parts: tuple[UpdatePart, ...] = (*before, last.with_noise(last.std / math.sqrt(rounds)))
    return replace(task, protection=replace(task.protection, update=Chain(parts) if before else parts[0]))


def _mean(observation: Observation) -> Observation:
    first, rounds = observation.rounds[0], observation.rounds
    mean = {
        name: torch.stack([one.observed[name].double() for one in rounds]).mean(0).to(value)
        for name, value in first.observed.items()
    }
    return replace(observation, rounds=(replace(first, observed=mean),))


def _alike(one: Round, other: Round) -> bool:
    """The same weights, buffers and grants."""
    return (
        one.clients == other.clients
        and not one.sent
        and not other.sent
        and _equal(one.params, other.params)
        and _equal(one.buffers, other.buffers)
        and _equal(one.granted, other.granted)
    )


def _equal(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    if one is other:
        return True
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one is other or torch.equal(one, other)
    return not isinstance(one, Tensor) and not isinstance(other, Tensor) and _equal(one, other)


__all__ = ["averages", "by_means", "with_means"]
