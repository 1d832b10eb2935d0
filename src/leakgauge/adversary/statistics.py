"""What an adversary takes for the statistics of a private batch, and how its candidates are normalised.

| knowledge | ``norms="measured"`` (train mode on the candidate) | ``norms="fixed"`` (eval mode) |
|---|---|---|
| granted, or read off shared buffers | *exact*: the private ones a target of the prior | *exact*: in their place |
| hidden | *infer*: the running ones a target of the prior | *proxy*: the running ones in their place |

Eval mode lets no gradient through the statistics, where the client's did: even with the private ones its update of the
true batch differs from the client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from leakgauge import batch_norm
from leakgauge.client import BATCH_STATISTICS
from leakgauge.errors import ModelError
from leakgauge.observation import Round
from leakgauge.task import Task
from leakgauge.types import Tree

Norms = Literal["measured", "fixed"]


def believed(task: Task, rounds: Sequence[Round], like: Tensor) -> dict[str, Tensor] | None:
    """``<layer>.mean`` and ``<layer>.variance`` of one round of M observations, ``[M, steps, C]``.

    Granted ones; else those that shared buffers give away; else the running ones. None where no layer measures its
    batch, or where neither is there.
    """
    each = [of_round(task, one) for one in rounds]
    known = [one for one in each if one]
    if not known or len(known) < len(each):
        return None
    return {name: torch.stack([one[name] for one in known]).to(like) for name in known[0]}


def of_round(task: Task, one: Round) -> Tree | None:
    """The same of one observation, ``[steps, C]``."""
    if BATCH_STATISTICS not in task.nuisances:
        return None
    granted = one.granted.get(BATCH_STATISTICS)
    if granted is not None and not isinstance(granted, Tensor):
        return granted
    recipe, steps = task.recipe, task.recipe.total_steps
    if steps == 1 and one.sent:
        leaked = batch_norm.read_off(task.working, one.buffers, one.sent, recipe.examples)
        if leaked is not None:
            return {name: value.unsqueeze(0) for name, value in leaked.items()}
    running = batch_norm.running(task.working, one.buffers, recipe.examples)
    return running and {name: value.expand(steps, *value.shape) for name, value in running.items()}


def are_leaked(task: Task) -> bool:
    """Whether shared buffers give the statistics away: after one local step of one client."""
    return task.recipe.shares_buffers and task.recipe.total_steps == 1


def have_running(task: Task) -> bool:
    """Whether every batch norm in train mode keeps running statistics."""
    return all(layer.running is not None for layer in batch_norm.layers(task.working).values())


def refuse_without_norms(task: Task, norms: Norms) -> None:
    """Statistics can be fixed only where layers would measure them."""
    if norms == "fixed" and BATCH_STATISTICS not in task.nuisances:
        mode = (
            f"the client is in {task.recipe.mode} mode" if task.recipe.mode == "eval" else "the model has no such layer"
        )
        raise ModelError(
            f'norms="fixed" replaces the statistics of batch norms in train mode, and {mode}',
            where="adversary",
            remedy='leave norms out, or attack a model with batch norm under Recipe(mode="train")',
        )


__all__ = ["Norms", "are_leaked", "believed", "have_running", "of_round", "refuse_without_norms"]
