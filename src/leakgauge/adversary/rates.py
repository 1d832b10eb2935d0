"""Hidden learning rates that repeat: a client whose generator is seeded anew draws the same rates every round.

Perturbed rates hide the scale of an update. Once a record is guessed, the common factor of all local steps that fits
round r best is a number ``c_r``, about a weighted mean of its hidden factors. Fresh factors of the law ``U(a, b)`` in
each of T steps give it a density of at most ``T / (b − a)``, so that of R rounds some m lie within a share ρ of their
largest, which is at most b, with a chance of at most ``C(R, m) m (ρ T b / (b − a))^(m − 1)``. Of one local step this
holds however good the guess is, since what finds it is blind to the scale; of several, about. A poor guess costs
power: it errs differently at different weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.adversary.labels.evidence import KEEPS_SCALE
from leakgauge.adversary.repeats import LEVEL, Repeat
from leakgauge.client import BATCH_STATISTICS, DROPOUT, ORDER
from leakgauge.laws import Uniform
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.updates.trees import mapped

PRECISION = 1e-7
"""Scales of updates in float32 are known no better than this."""

FITS = 4
"""Gauss-Newton steps of a fitted factor; of one local step the first is exact."""

NUDGE = 1e-4
"""The step of the central difference by which a factor about one is fitted."""


@dataclass(frozen=True)
class Shared:
    """Rounds that drew the same hidden rates: for each the ``first`` of them, and where a search for them begins.

    ``rates[address]`` is ``[n, rounds]``, one row per observation: a factor for all steps.
    """

    first: tuple[int, ...]
    rates: Mapping[str, Tensor]


def hidden_rates(task: Task, observation: Observation) -> str | None:
    """The address of the drawn rates, where their repetition can be tested.

    They need one hidden uniform law of the training stage, nothing else that is drawn before the update stage, and
    only parts after which an update still has its length.
    """
    parts = task.protection.stage("training")
    addresses = [a for a in task.nuisances if a.rpartition(".")[0] in parts]
    drawn_elsewhere = task.protection.input or task.protection.model
    others = {BATCH_STATISTICS, DROPOUT, ORDER} & set(task.nuisances)
    lengths = all(isinstance(part, KEEPS_SCALE) for part in task.protection.chain.parts)
    if len(addresses) != 1 or len(observation.rounds) < 2 or drawn_elsewhere or others or not lengths:
        return None
    law = task.nuisances[addresses[0]].law
    uncertain = isinstance(law, Uniform) and law.high > law.low
    granted = any(addresses[0] in one.granted for one in observation.rounds)
    return addresses[0] if uncertain and not granted else None


def repeated_rates(
    task: Task, observation: Observation, inputs: Tensor, labels: Tensor, *, level: float = LEVEL
) -> tuple[list[Repeat], Tensor]:
    """The rounds whose rates repeat, as the guess ``inputs [B, …]``, ``labels [B]`` shows, and the factors ``[R]``.

    Every round of the group that is least likely by chance is named beside the first of it.
    """
    address = hidden_rates(task, observation)
    if address is None:
        return [], torch.ones(len(observation.rounds))
    law = task.nuisances[address].law
    assert isinstance(law, Uniform)
    exact = task.to(dtype=torch.float64)
    factors = [_factor(exact, one, address, inputs.double(), labels) for one in observation.rounds]
    places, chance = nearest_group(factors, law, steps=task.recipe.total_steps)
    others = places[1:] if chance < level else []
    return [Repeat("rates", places[0], other, chance) for other in others], torch.tensor(factors)


def nearest_group(factors: Sequence[float], law: Uniform, *, steps: int = 1) -> tuple[list[int], float]:
    """The rounds whose factors agree best, and the chance that fresh rates of this law agree so well anywhere."""
    order = sorted(range(len(factors)), key=factors.__getitem__)
    stretch = steps * law.high / (law.high - law.low)
    count, best = len(factors), (list[int](), 1.0)
    for size in range(2, count + 1):
        for start in range(count - size + 1):
            group = order[start : start + size]
            low, high = factors[group[0]], factors[group[-1]]
            if not (math.isfinite(high) and low > 0):
                continue
            share = max((high - low) / high, PRECISION) * stretch
            chance = (count - 1) * math.comb(count, size) * size * share ** (size - 1)
            if chance < best[1]:
                best = sorted(group), chance
    return best


def _factor(task: Task, one: Round, address: str, inputs: Tensor, labels: Tensor) -> float:
    """The factor of all steps at which the guess's update is nearest to the observed one, where that was sent."""
    observed = torch.cat([value.double().flatten() for value in one.observed.values()])
    sent = observed != 0

    def update(factor: float) -> Tensor:
        return _update(task, one, address, inputs, labels, factor)[sent]

    factor = 1.0
    for _ in range(FITS if task.recipe.total_steps > 1 else 1):
        slope = (update(factor + NUDGE) - update(factor - NUDGE)) / (2 * NUDGE)
        square = max(float(slope @ slope), torch.finfo(slope.dtype).tiny)
        factor += float(slope @ (observed[sent] - update(factor))) / square
    return factor


def _update(task: Task, one: Round, address: str, inputs: Tensor, labels: Tensor, factor: float = 1.0) -> Tensor:
    """The guess's update at the state of a round, flat, with one factor for all steps; in the precision of the task."""
    scales = torch.full((task.recipe.total_steps,), factor, dtype=inputs.dtype)
    params = {name: p.to(inputs) for name, p in one.params.items()}
    buffers = {name: b.to(inputs) if b.is_floating_point() else b for name, b in one.buffers.items()}
    tree = task.client(params, inputs, labels, {address: scales}, buffers={**task.buffers, **buffers})
    return torch.cat([tree[name].detach().flatten() for name in one.observed])


def repeated_in_difference(
    task: Task, observation: Observation, pair: Repeat, inputs: Tensor, labels: Tensor, *, level: float = LEVEL
) -> Repeat | None:
    """Whether two rounds that share their noise share their rate as well, where there is one local step.

    The noise is gone from their difference, ``o₁ − o₂ = c₁ g₁ − c₂ g₂``, of which least squares gives both factors.
    """
    address = hidden_rates(task, observation)
    if address is None or task.recipe.total_steps > 1:
        return None
    law, exact = task.nuisances[address].law, task.to(dtype=torch.float64)
    assert isinstance(law, Uniform)
    one, other = (observation.rounds[r] for r in (pair.first, pair.second))
    slopes = [_update(exact, each, address, inputs.double(), labels) for each in (one, other)]
    difference = torch.cat([(v.double() - other.observed[n].double()).flatten() for n, v in one.observed.items()])
    both = torch.stack([slopes[0], -slopes[1]], 1)
    factors = torch.linalg.lstsq(both, difference.unsqueeze(1)).solution.flatten()
    _, chance = nearest_group(factors.tolist(), law)
    return Repeat("rates", pair.first, pair.second, chance) if chance < level else None


def are_apart(observation: Observation, repeats: Sequence[Repeat]) -> bool:
    """Whether rounds that share their rates have different weights: else their lengths say nothing new."""
    rounds = observation.rounds
    return any(
        bool(difference.any())
        for repeat in repeats
        for difference in mapped(torch.sub, rounds[repeat.first].params, rounds[repeat.second].params).values()
    )


__all__ = ["Shared", "are_apart", "hidden_rates", "nearest_group", "repeated_in_difference", "repeated_rates"]
