"""A cheap surrogate for many local steps: one gradient, at a place on the way.

Unrolling a client costs every one of its steps, forwards and backwards. The server knows both ends of the way, θ and
``θ + change``; by the mean value theorem the sum of a client's gradients is near that of one gradient of all its
records at a point between them, up to scale: ``−change ∝ ∇L(θ + α change; x)``. α = 1/2 is right to second order for a
short way; a client that soon fits its records moves by its first gradients most, and α is nearer 0. The paper learns
α; here the best of three is taken, by the fit of the update.

References:
    Zhu et al., Surrogate Model Extension: A Fast and Accurate Weight Update Attack on Federated Learning, 2023.
    https://arxiv.org/abs/2306.00127
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from leakgauge import batch_norm
from leakgauge.client import BATCH_STATISTICS, LABELS
from leakgauge.defenses import Protection
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Treatment, Tree

PLACES = (0.5, 0.25, 0.0)
"""Where on the way the gradient is taken: shares of the whole change."""


def is_worth(task: Task, unroll: int) -> bool:
    """Whether a task has more local steps than an adversary wants to unroll. Adam's steps are no sum of gradients."""
    recipe = task.recipe
    return recipe.shares == "change" and recipe.optimiser == "sgd" and recipe.total_steps > unroll


def surrogate(task: Task, observations: Sequence[Observation], place: float = 0.5) -> tuple[Task, list[Observation]]:
    """The task of one gradient, and what was observed as one; rates, orders, momentum and the number of steps drop out.

    A part at the update stage is left out, too: directions alone are matched.
    """
    recipe = replace(
        task.recipe,
        shares="gradient",
        local_steps=1,
        minibatch=None,
        momentum=0.0,
        weight_decay=0.0,
        shuffle=False,
        clients=1,
        shares_buffers=False,
    )
    protection = Protection(input=task.protection.input, model=task.protection.model)
    return replace(task, recipe=recipe, protection=protection), [_turned(one, place) for one in observations]


def _turned(one: Observation, place: float) -> Observation:
    return replace(one, rounds=tuple(_gradient(each, place) for each in one.rounds))


def _gradient(one: Round, place: float) -> Round:
    observed = {name: -value for name, value in one.observed.items()}
    middle = {name: p + place * one.observed[name].to(p) for name, p in one.params.items()}
    granted = {address: value for address, value in one.granted.items() if address == LABELS}
    statistics = one.granted.get(BATCH_STATISTICS)
    if statistics is not None and not isinstance(statistics, Tensor):
        granted[BATCH_STATISTICS] = _of_all_steps(statistics)
    return replace(one, observed=observed, params=middle, granted=granted, clients=1, sent={})


def _of_all_steps(statistics: Tree) -> dict[str, Tensor]:
    """The statistics of the examples of all steps together, as those of the one gradient."""
    joined = batch_norm.pooled(statistics, 0)
    means = {f"{name}.{batch_norm.MEAN}": mean.unsqueeze(0) for name, (mean, _) in joined.items()}
    return means | {f"{name}.{batch_norm.VARIANCE}": v.unsqueeze(0) for name, (_, v) in joined.items()}


def treated(task: Task, listed: Sequence[Treatment]) -> list[Treatment]:
    """What the surrogate does about the nuisances of local steps."""
    steps = {
        a for a, n in task.nuisances.items() if n.per in ("step", "update") and a not in (LABELS, BATCH_STATISTICS)
    }
    sentence = "hidden; cancelled, since the whole way is taken for one gradient on it"
    return [Treatment(one.address, "cancelled", sentence) for one in listed if one.address in steps]


__all__ = ["PLACES", "is_worth", "surrogate", "treated"]
