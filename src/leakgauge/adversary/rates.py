"""Hidden learning rates that repeat: a client whose generator is seeded anew draws the same rates every round.

Perturbed rates hide the scale of an update. Once a record is guessed, ``o_r ≈ Σ_t s_rt g_rt`` gives the scales of
every round by least squares, and their sum ``S_r`` is well determined even where single steps resemble each other.
Fresh rates of the law ``U(a, b)`` give sums whose density is at most ``1 / (b − a)``, so that of R rounds some m lie
within a share ρ of their largest sum, which is at most ``T b`` with T local steps, with a chance of at most
``C(R, m) m (ρ T b / (b − a))^(m − 1)``. Of one local step this holds however good the guess is, since what finds it
is blind to the scale; of several, about. A poor guess costs power: it errs differently at different weights.
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

FITS = 6
"""Gauss-Newton steps of the fitted scales; of one local step the first is exact."""

NUDGE = 1e-4
"""The step of the central differences by which the scales are fitted, beside scales about one."""


@dataclass(frozen=True)
class Shared:
    """Rounds that drew the same hidden rates: for each the ``first`` of them, and where a search for them begins.

    ``rates[address]`` is ``[n, rounds, steps]``, one row per observation.
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
    """The rounds whose rates repeat, as the guess ``inputs [B, …]``, ``labels [B]`` shows, and all scales ``[R, T]``.

    Every round of the group that is least likely by chance is named beside the first of it.
    """
    address = hidden_rates(task, observation)
    if address is None:
        return [], torch.ones(len(observation.rounds), task.recipe.total_steps)
    law = task.nuisances[address].law
    assert isinstance(law, Uniform)
    scales = torch.stack([_scales(task, one, address, inputs, labels) for one in observation.rounds])
    places, chance = nearest_group(scales.sum(1).tolist(), law, steps=scales.shape[1])
    if chance >= level:
        return [], scales
    return [Repeat("rates", places[0], other, chance) for other in places[1:]], scales


def nearest_group(totals: Sequence[float], law: Uniform, *, steps: int = 1) -> tuple[list[int], float]:
    """The rounds whose sums of scales agree best, and the chance that fresh rates agree so well anywhere."""
    order = sorted(range(len(totals)), key=totals.__getitem__)
    stretch = steps * law.high / (law.high - law.low)
    count, best = len(totals), (list[int](), 1.0)
    for size in range(2, count + 1):
        for start in range(count - size + 1):
            group = order[start : start + size]
            low, high = totals[group[0]], totals[group[-1]]
            if not (math.isfinite(high) and low > 0):
                continue
            share = max((high - low) / high, PRECISION) * stretch
            chance = (count - 1) * math.comb(count, size) * size * share ** (size - 1)
            if chance < best[1]:
                best = sorted(group), chance
    return best


def _scales(task: Task, one: Round, address: str, inputs: Tensor, labels: Tensor) -> Tensor:
    """``[T]``: the scales at which the guess's update is nearest to the one observed, over entries that were sent."""
    exact = task.to(dtype=torch.float64)
    params = {name: p.double() for name, p in one.params.items()}
    buffers = {name: b.double() if b.is_floating_point() else b for name, b in {**task.buffers, **one.buffers}.items()}
    observed = torch.cat([value.double().flatten() for value in one.observed.values()])
    sent = observed != 0

    def update(scales: Tensor) -> Tensor:
        tree = exact.client(params, inputs.double(), labels, {address: scales}, buffers=buffers)
        return torch.cat([tree[name].detach().flatten() for name in one.observed])[sent]

    scales = torch.ones(task.recipe.total_steps, dtype=torch.float64)
    nudges = NUDGE * torch.eye(len(scales), dtype=torch.float64)
    for _ in range(FITS if len(scales) > 1 else 1):
        slopes = torch.stack([(update(scales + n) - update(scales - n)) / (2 * NUDGE) for n in nudges], 1)
        # steps that resemble each other leave their single scales open: the least change is taken
        step = torch.linalg.lstsq(slopes, (observed[sent] - update(scales)).unsqueeze(1), rcond=1e-6, driver="gelsd")
        scales = scales + step.solution.squeeze(1)
    return scales


def are_apart(observation: Observation, repeats: Sequence[Repeat]) -> bool:
    """Whether rounds that share their rates have different weights: else their lengths say nothing new."""
    rounds = observation.rounds
    return any(
        bool(difference.any())
        for repeat in repeats
        for difference in mapped(torch.sub, rounds[repeat.first].params, rounds[repeat.second].params).values()
    )


__all__ = ["Shared", "are_apart", "hidden_rates", "nearest_group", "repeated_rates"]
