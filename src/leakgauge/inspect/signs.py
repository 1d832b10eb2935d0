"""The sign of an update, from its last layer alone: exact evidence for one example, before any attack.

For one example and cross-entropy the last layer's gradient is ``δ hᵀ`` (weight) and ``δ`` (bias), with
``δ = softmax(W h + b) − e_y``. With a bias the features h follow from both whatever the sign, and then δ does.
Without one, δ is known up to its length, since only one of its entries is negative, and h up to a factor c, which
``log δ_k = c (W v)_k + b_k + constant`` (all k but y) determines with its sign.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.adversary.labels import last_layer
from leakgauge.errors import ModelError
from leakgauge.losses import CrossEntropy
from leakgauge.task import Task
from leakgauge.types import Tree

CLEAR = 10.0
"""How many times better one sign must fit the last layer than the other."""

FITS = 0.05
"""The largest share of the last layer's gradient that the better sign may leave unexplained."""

SMALL = 1e-5
"""Entries below this share of the largest are rounding."""


def sign_of(task: Task, gradient: Tree, batch: int) -> int | None:
    """+1 if ``gradient`` points along a gradient, −1 if against it, None where the last layer does not say.

    It says nothing of several examples, of other losses than cross-entropy, of two classes (the opposite sign is the
    other class), and where noise has covered it.
    """
    if batch != 1 or task.recipe.loss != CrossEntropy() or task.domain.classes < 3:
        return None
    try:
        weight, bias = last_layer(gradient, task.domain.classes)
    except ModelError:
        return None
    slope = gradient[weight].double()
    rows = task.params[weight].double()
    own_bias = task.params[bias].double() if bias is not None else torch.zeros_like(rows[:, 0])
    left = _with_bias(slope, gradient[bias].double(), rows, own_bias) if bias else _without(slope, rows, own_bias)
    if left is None:
        return None
    along, against = left
    if min(left) > FITS or max(left) < CLEAR * min(left):
        return None
    return 1 if along < against else -1


def _with_bias(slope: Tensor, delta: Tensor, rows: Tensor, bias: Tensor) -> tuple[float, float] | None:
    """The share of δ that the best class leaves unexplained, as sent and turned."""
    if not float(delta.norm()):
        return None
    features = delta @ slope / delta.square().sum()
    return _unexplained(delta, features, rows, bias), _unexplained(-delta, features, rows, bias)


def _without(slope: Tensor, rows: Tensor, bias: Tensor) -> tuple[float, float] | None:
    """The same from the weight alone: its leading singular vectors are δ and h up to their lengths and signs."""
    left, _, right = torch.linalg.svd(slope, full_matrices=False)
    delta, features = left[:, 0], right[0]
    best = {1: 1.0, -1: 1.0}
    for turn in (1.0, -1.0):
        signed = turn * delta
        others = signed > SMALL * float(signed.abs().max())
        if int((signed < -SMALL).sum()) != 1 or int(others.sum()) < 3:
            continue  # one class is lowered by its own example, all others are raised
        heights = (rows @ features)[others]
        logits = signed[others].log() - bias[others]
        centred = heights - heights.mean()
        factor = float((centred @ (logits - logits.mean())) / centred.square().sum().clamp(min=1e-300))
        for sign in (1, -1):  # of h along v: the factor that fits, or none at all
            used = factor if factor * sign * turn > 0 else 0.0
            best[sign] = min(best[sign], _unexplained(signed, used * features, rows, bias))
    return (best[1], best[-1]) if min(best.values()) < 1 else None


def _unexplained(delta: Tensor, features: Tensor, rows: Tensor, bias: Tensor) -> float:
    """``1 − cos²`` of δ and ``softmax(W h + b) − e_y``, for the class that fits best."""
    chances = (rows @ features + bias).softmax(0)
    expected = chances - torch.eye(len(chances), dtype=chances.dtype)
    cosines = expected @ delta / (expected.norm(dim=1) * delta.norm()).clamp(min=1e-300)
    return float(1 - cosines.max().clamp(min=0) ** 2)
