"""A prior over finitely many records: the adversary knows that the record is one of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.priors.base import PriorPart
from leakgauge.types import Candidate


@dataclass(frozen=True, repr=False, eq=False)
class Finite(PriorPart):
    """``log (1/K) Σ_k N(x | a_k, τ² I)``: one of K records a, blurred by ``τ = std`` so that it has a gradient.

    As τ → 0 the posterior maximiser becomes the exact one among the K records. There is a local maximum at each record:
    with ``start="prior"``, restart r of an adversary begins at record r mod K. It contains data, so ``parse``
    cannot read its text back.
    """

    atoms: NDArray[np.float32]
    std: float

    def __post_init__(self) -> None:
        if len(self.atoms) < 1 or not (self.std > 0 and math.isfinite(self.std)):
            raise DomainError(
                f"got {len(self.atoms)} records and std={self.std}",
                where="finite prior",
                remedy="give at least one record and a positive std",
            )

    def __call__(self, candidate: Candidate) -> Tensor:
        x = candidate.inputs.flatten(1)
        atoms = self._atoms(x).flatten(1)
        middle = atoms.mean(0)  # around it the squares below are short, and cancel less
        x, atoms = x - middle, atoms - middle
        square = x.square().sum(1, keepdim=True) - 2 * x @ atoms.T + atoms.square().sum(1)
        constant = math.log(len(atoms)) + x.shape[1] * math.log(self.std * math.sqrt(2 * math.pi))
        return torch.logsumexp(-square / (2 * self.std**2), 1) - constant

    def starts(self, restarts: Sequence[int], like: Tensor) -> Tensor:
        """Where the restarts begin, ``[N, 1, …]``."""
        return self._atoms(like)[[restart % len(self.atoms) for restart in restarts]].unsqueeze(1)

    def _atoms(self, like: Tensor) -> Tensor:
        return torch.as_tensor(self.atoms).to(like)

    def __repr__(self) -> str:
        return f"finite({len(self.atoms)} records, std={self.std})"
