"""Labels: read off the last layer, or optimised beside the inputs.

For one example of class c the gradient of the last bias is ``softmax(z) − e_c``: its only negative entry is c,
whatever the record and under any positive scale. Without a bias, the row sums of the last weight gradient say
the same when the features are non-negative (iDLG).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from leakgauge.errors import ModelError
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Tree

Rule = Literal["auto", "bias", "rows"]


def labels_of(task: Task, observation: Observation, rule: Rule = "auto") -> Tensor:
    """The granted labels of an observation, else those that its first round betrays, ``[batch]``."""
    if observation.labels is not None:
        return observation.labels
    observed = observation.rounds[0].observed
    if task.recipe.shares == "change":  # a weight change points against the gradient
        observed = {name: -value for name, value in observed.items()}
    return inferred(observed, task.params, task.domain.classes, observation.batch, rule)


def last_layer(params: Tree, classes: int) -> tuple[str, str | None]:
    """The names of the last linear layer's weight and of its bias, if it has one."""
    weights = [name for name, p in params.items() if p.dim() == 2 and p.shape[0] == classes]
    if not weights:
        raise ModelError(
            f"no linear layer with {classes} outputs to read labels from",
            where="labels",
            remedy='say labels="known" or labels="joint"',
        )
    bias = weights[-1].removesuffix("weight") + "bias"
    return weights[-1], bias if bias in params else None


def inferred(observed: Tree, params: Tree, classes: int, batch: int, rule: Rule = "auto") -> Tensor:
    """The labels of a batch from one observed gradient, ``[batch]``, in ascending order.

    Batch 1: the most negative entry. Larger batches: classes with a negative entry come first, most negative
    first, for only an example of that class can make it so; the rest of the batch is filled by how much each further
    copy would explain, with a fixed share per example. Exact for batch 1; for larger batches an estimate.

    References:
        Zhao et al., iDLG, 2020. https://arxiv.org/abs/2001.02610
        Yin et al., See through Gradients, 2021 (unique labels of a batch). https://arxiv.org/abs/2104.07586
    """
    weight, bias = last_layer(params, classes)
    if rule == "bias" and bias is None:
        raise ModelError("the last layer has no bias", where="labels", remedy='use rule="rows"')
    use_bias = bias is not None and rule != "rows"
    signal = (observed[bias] if use_bias and bias is not None else observed[weight].sum(1)).double()
    labels: list[int] = []
    # each example of class c lowers entry c by about total/batch; take the lowest, give its share back, repeat
    share = -signal.clamp(max=0).sum() / batch
    left, sure = signal.clone(), signal < 0
    for _ in range(batch):
        lowest = int((torch.where(sure, left, torch.inf) if bool(sure.any()) else left).argmin())
        labels.append(lowest)
        sure[lowest] = False
        left[lowest] += share
    return torch.tensor(sorted(labels))
