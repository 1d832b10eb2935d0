"""Which reconstruction of a batch belongs to which record: one to one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.metrics.images import refuse_others
from leakgauge.metrics.pictures import Mse
from leakgauge.types import Metric

IMAGES = Mse()


@dataclass(frozen=True)
class Matching:
    """``reconstruction[n, permutation[n, i]]`` belongs to ``truth[n, i]``; ``scores[n, i]`` is their score."""

    permutation: Tensor
    scores: Tensor

    def apply(self, values: Tensor) -> Tensor:
        """Bring reconstructions, or their labels, ``[N, B, …]`` into the order of the truth."""
        index = self.permutation.to(values.device).view(*self.permutation.shape, *[1] * (values.ndim - 2))
        return values.take_along_dim(index.expand_as(values), 1)


def match(reconstruction: Tensor, truth: Tensor, *, metric: Metric = IMAGES) -> Matching:
    """Match the B reconstructions of each problem one-to-one with its B records, at the best total score.

    By default ``min over permutations π of Σᵢ mse(reconstruction[π(i)], truth[i])``, exactly (Hungarian method),
    ``[N, B, …]``; of a domain that is not images, ``metrics.of(domain).matching`` is the metric.
    A gradient of a batch does not say who was first, so metrics of batches need this; one matching serves all
    metrics, and no record is found twice, unlike "best target for each reconstruction".
    A reconstruction that is infinitely far from every record takes one that is left over.
    Ties: the same input always gives the same matching.
    """
    refuse_others("match", reconstruction, truth)
    if reconstruction.ndim < 3 or reconstruction.shape != truth.shape:
        raise DomainError(
            f"reconstruction {list(reconstruction.shape)} and truth {list(truth.shape)} must both be [N, B, …]",
            where="match",
            remedy="give one reconstruction per record; view a single one as [1, 1, …]",
        )
    problems = [metric.pairwise(ours, theirs) for ours, theirs in zip(reconstruction, truth, strict=True)]
    if not problems:
        empty = torch.zeros(truth.shape[:2], device=truth.device)
        return Matching(empty.long(), empty.double())
    scores = torch.stack(problems).mT
    permutation = torch.stack([assign(one, lower=metric.meaning.direction == "lower") for one in scores])
    permutation = permutation.to(scores.device)
    return Matching(permutation, scores.gather(2, permutation.unsqueeze(2)).squeeze(2))


def assign(scores: Tensor, *, lower: bool) -> Tensor:
    """The column of each row of ``[B, B]`` in the assignment with the best sum."""
    # a reconstruction that is infinitely far from every record must not decide where the others go: a constant
    # column leaves the best matching of the others unchanged
    decisive = scores.where(scores.isfinite(), 0).cpu().numpy()
    return torch.as_tensor(linear_sum_assignment(decisive, maximize=not lower)[1])
