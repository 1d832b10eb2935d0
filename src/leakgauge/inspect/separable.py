"""Label hypotheses that do not depend on the sign of an update: classes that its last layer separates.

The last weight's gradient is ``Σ_i δ_i h_iᵀ`` with ``δ_i = softmax − e_{y_i}``, so its left singular space of rank B
holds every δ_i: a vector with one negative entry, at the label, and positive ones elsewhere. A class for which the
space holds no such vector is in no example. Flipping the update does not change the space.

References:
    Dang et al., Revealing and Protecting Labels in Distributed Training, 2021. https://arxiv.org/abs/2111.00556
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from leakgauge.adversary.labels import last_layer
from leakgauge.errors import ModelError
from leakgauge.types import Tree

CLEAN = 1e-4
"""Singular values beyond the batch are noise above this share of the largest, and rounding below it."""

SURE = 1e-6
"""Margins below this are rounding."""


def separable(gradient: Tree, classes: int, batch: int) -> Tensor | None:
    """Labels ``[batch]`` from the classes that the last layer separates; None where it separates too many or none.

    It says something for batches below the number of classes less one, and of updates without noise, whose rank is at
    most the batch. Where fewer classes than examples are separated, the ones with the longest rows are taken again.
    """
    try:
        weight, _ = last_layer(gradient, classes)
    except ModelError:
        return None
    if batch >= classes - 1:
        return None
    left, values, _ = torch.linalg.svd(gradient[weight].double(), full_matrices=False)
    if len(values) <= batch or float(values[batch]) > CLEAN * float(values[0]):
        return None
    margins = [_margin(left[:, :batch].numpy(), label) for label in range(classes)]
    present = [label for label in sorted(range(classes), key=lambda c: -margins[c]) if margins[label] > SURE]
    if not present or len(present) > batch:
        return None
    lengths = gradient[weight].double().norm(dim=1)
    longest = sorted(present, key=lambda label: -float(lengths[label]))
    repeated = [longest[i % len(longest)] for i in range(batch - len(present))]
    return torch.tensor(sorted(present + repeated))


def _margin(space: np.ndarray, label: int) -> float:
    """The largest t with ``(space v)_label ≤ −t`` and ``(space v)_k ≥ t`` for all others, over v in a box."""
    signs = np.ones(len(space))
    signs[label] = -1
    width = space.shape[1]
    rows = np.hstack([-signs[:, None] * space, np.ones((len(space), 1))])
    answer = linprog(
        np.r_[np.zeros(width), -1.0], A_ub=rows, b_ub=np.zeros(len(space)), bounds=[(-1, 1)] * width + [(None, None)]
    )
    return float(-answer.fun) if answer.success else 0.0
