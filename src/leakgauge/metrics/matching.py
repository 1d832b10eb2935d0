"""Which reconstruction of a batch belongs to which record: one to one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.metrics.images import comparable


@dataclass(frozen=True)
class Matching:
    """``reconstruction[n, permutation[n, i]]`` belongs to ``truth[n, i]``; ``mse[n, i]`` is the error of that pair."""

    permutation: Tensor
    mse: Tensor

    def apply(self, values: Tensor) -> Tensor:
        """Bring reconstructions, or their labels, ``[N, B, …]`` into the order of the truth."""
        index = self.permutation.to(values.device).view(*self.permutation.shape, *[1] * (values.ndim - 2))
        return values.take_along_dim(index.expand_as(values), 1)


def match(reconstruction: Tensor, truth: Tensor, *, images: bool = True) -> Matching:
    """Match the B reconstructions of each problem one-to-one with its B records, at the least total MSE.

    ``min over permutations π of Σᵢ mse(reconstruction[π(i)], truth[i])``, exactly (Hungarian method), ``[N, B, …]``.
    A gradient of a batch does not say who was first, so metrics of batches need this; one matching serves all
    metrics, and no record is found twice, unlike "best target for each reconstruction".
    Images follow the rules of the image metrics (clipped, non-finite pixels are grey). With ``images=False`` (tables)
    nothing is clipped, and a reconstruction with a non-finite entry takes a record that is left over, at error ``inf``.
    Ties: the same input always gives the same matching.
    """
    if reconstruction.ndim < 3 or reconstruction.shape != truth.shape:
        raise DomainError(
            f"reconstruction {list(reconstruction.shape)} and truth {list(truth.shape)} must both be [N, B, …]",
            where="match",
            remedy="give one reconstruction per record; view a single one as [1, 1, …]",
        )
    if images:
        ours, theirs = comparable(reconstruction, truth, where="match")
    else:
        ours, theirs = reconstruction.detach().double(), truth.detach().double()
    ours, theirs = ours.flatten(2), theirs.flatten(2)
    # one record at a time: all pairs at once would need B times the memory
    cost = torch.stack([(ours - theirs[:, i : i + 1]).square().mean(2) for i in range(theirs.shape[1])], dim=1)
    cost = cost.nan_to_num(nan=torch.inf, posinf=torch.inf)
    # a reconstruction that is infinitely far from every record must not decide where the others go: a constant
    # column leaves the best matching of the others unchanged
    decisive = cost.where(cost.isfinite(), 0).cpu().numpy()
    best = [torch.as_tensor(linear_sum_assignment(problem)[1]) for problem in decisive]
    permutation = torch.stack(best).to(cost.device) if best else torch.zeros(cost.shape[:2], dtype=torch.long)
    return Matching(permutation, cost.gather(2, permutation.unsqueeze(2)).squeeze(2))
