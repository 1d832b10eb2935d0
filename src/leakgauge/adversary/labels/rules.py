"""The published rules: signs of the last layer's gradient, each exact under a condition of its own.

For one example of class c the gradient of the last bias is ``softmax(z) − e_c``: its only negative entry is c,
whatever the record and under any positive scale. Without a bias, the row sums of the last weight gradient say
the same when the features are non-negative (iDLG), and so do the lowest entries of its rows (GradInversion).
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.adversary.labels.counts import Counts
from leakgauge.errors import DomainError


def by_sign(signal: Tensor, batch: int) -> Counts:
    """Counts from one number per class, of which only an example of that class can make one negative.

    Negative entries come first, most negative first; the rest of the batch is filled by how much each further copy
    would explain, with a fixed share per example. The confidence is the share of the batch that a sign proves.

    References:
        Zhao et al., iDLG, 2020. https://arxiv.org/abs/2001.02610
    """
    counts = torch.zeros(len(signal), dtype=torch.long)
    share = -signal.clamp(max=0).sum() / batch
    left, proven = signal.double().clone(), signal < 0
    confidence = min(1.0, int(proven.sum()) / batch)
    for _ in range(batch):
        lowest = int((torch.where(proven, left, torch.inf) if bool(proven.any()) else left).argmin())
        counts[lowest] += 1
        proven[lowest] = False
        left[lowest] += share
    return Counts(counts, confidence)


def unique(weight: Tensor, batch: int) -> Counts:
    """The classes of a batch without repeated labels: those with the lowest entry in their row of the last gradient.

    Caveat: needs non-negative features and ``batch`` different classes. The confidence is the share of the chosen rows
    that have a negative entry.

    References:
        Yin et al., See through Gradients, 2021. https://arxiv.org/abs/2104.07586
    """
    if batch > len(weight):
        raise DomainError(
            f"a batch of {batch} cannot have unique labels among {len(weight)} classes",
            where="labels",
            remedy='use rule="auto", which counts repeated labels',
        )
    lowest = weight.double().min(1).values
    chosen = lowest.argsort()[:batch]
    counts = torch.zeros(len(weight), dtype=torch.long)
    counts[chosen.cpu()] = 1
    return Counts(counts, float((lowest[chosen] < 0).double().mean()))
