"""A cheap surrogate for many local steps: one gradient, at the middle of the way.

Unrolling a client costs every one of its steps, forwards and backwards. The server knows both ends of the way, θ and
``θ + change``; by the mean value theorem the sum of a client's gradients is near that of one gradient of all its
records at a point between them, up to scale: ``−change ∝ ∇L(θ + α change; x)``, with α = 1/2.

References:
    Zhu et al., Surrogate Model Extension: A Fast and Accurate Weight Update Attack on Federated Learning, 2023.
    https://arxiv.org/abs/2306.00127
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leakgauge.client import LABELS
from leakgauge.defenses import Protection
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Treatment

ALPHA = 0.5


def is_worth(task: Task, unroll: int) -> bool:
    """Whether a task has more local steps than an adversary wants to unroll. Adam's steps are no sum of gradients."""
    recipe = task.recipe
    return recipe.shares == "change" and recipe.optimiser == "sgd" and recipe.total_steps > unroll


def surrogate(task: Task, observations: Sequence[Observation]) -> tuple[Task, list[Observation]]:
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
    )
    protection = Protection(input=task.protection.input, model=task.protection.model)
    return replace(task, recipe=recipe, protection=protection), [_turned(one) for one in observations]


def _turned(one: Observation) -> Observation:
    return replace(one, rounds=tuple(_gradient(each) for each in one.rounds))


def _gradient(one: Round) -> Round:
    observed = {name: -value for name, value in one.observed.items()}
    middle = {name: p + ALPHA * one.observed[name].to(p) for name, p in one.params.items()}
    labels = {address: value for address, value in one.granted.items() if address == LABELS}
    return replace(one, observed=observed, params=middle, granted=labels, clients=1)


def treated(task: Task, listed: Sequence[Treatment]) -> list[Treatment]:
    """What the surrogate does about the nuisances of local steps."""
    steps = {a for a, n in task.nuisances.items() if n.per in ("step", "update") and a != LABELS}
    sentence = "hidden; cancelled, since the whole way is taken for one gradient at its middle"
    return [Treatment(one.address, "cancelled", sentence) for one in listed if one.address in steps]


__all__ = ["is_worth", "surrogate", "treated"]
