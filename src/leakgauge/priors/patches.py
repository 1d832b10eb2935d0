"""A density of small patches, learned from pictures: neighbouring pixels as they are, not only as alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log, pi
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.priors.base import PriorPart
from leakgauge.priors.generators import TRAIN, facts_of, same_file, trained_on
from leakgauge.storage.states import FileError, read_state
from leakgauge.types import Candidate


@dataclass(frozen=True)
class Mixture:
    """A Gaussian mixture: ``logits [K]``, ``means [K, d]``, Cholesky ``factors`` of the precisions ``[K, d, d]``.

    ``log p(x) = logsumexp_k(log w_k + log|R_k| − ½ ‖R_kᵀ (x − μ_k)‖² − ½ d log 2π)``, with precision ``R Rᵀ``.
    """

    logits: Tensor
    means: Tensor
    factors: Tensor

    def parts(self, points: Tensor) -> Tensor:
        """The joint log density of each point and component, ``[n, K]``."""
        size = points.shape[1]
        offsets = torch.einsum("kd,kde->ke", self.means, self.factors)
        along = torch.einsum("nd,kde->nke", points, self.factors) - offsets
        volume = self.factors.diagonal(dim1=1, dim2=2).log().sum(1)
        return self.logits.log_softmax(0) + volume - 0.5 * along.square().sum(2) - 0.5 * size * log(2 * pi)

    def log_density(self, points: Tensor) -> Tensor:
        return self.parts(points).logsumexp(1)

    def to(self, like: Tensor) -> Mixture:
        return Mixture(*(value.to(like) for value in (self.logits, self.means, self.factors)))


def patches_of(images: Tensor, size: int) -> Tensor:
    """Every patch of every channel, ``[n, C, H, W] → [n, patches, size²]``."""
    n = len(images)
    channels = images.flatten(0, 1).unsqueeze(1)
    return F.unfold(channels, size).transpose(1, 2).reshape(n, -1, size * size)


@register("prior", "patches")
@dataclass(frozen=True, repr=False)
class Patches(PriorPart):
    """The mean log density of a picture's overlapping patches under a Gaussian mixture learned from other pictures.

    ``(1/B) Σ_b mean_p log p(patch_p(x_b))``, from a file that ``leakgauge train-prior --family patches`` wrote. It is
    no density of whole pictures, for patches overlap; its weight is to be tuned, as that of total variation is.

    References:
        Zoran and Weiss, From Learning Models of Natural Image Patches to Whole Image Restoration, 2011.
    """

    file: str
    sha256: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", same_file(self.file, self.sha256))
        read_mixture(self.file, self.sha256)

    def trained_on(self, inputs: Tensor) -> int:
        """How many of these records the prior was trained on: report none of them."""
        return trained_on(self.file, self.sha256, inputs)

    def __call__(self, candidate: Candidate) -> Tensor:
        size, mixture = read_mixture(self.file, self.sha256)
        x = candidate.inputs
        if x.ndim != 5 or min(x.shape[-2:]) < size:
            raise DomainError(
                f"patches of {size} x {size} pixels need pictures, got records of shape {tuple(x.shape[2:])}",
                where=repr(self),
                remedy="use another prior",
            )
        cut = patches_of(x.flatten(0, 1), size)
        density = mixture.to(x).log_density(cut.flatten(0, 1)).view(x.shape[0], -1)
        return density.mean(1)


@lru_cache(maxsize=4)
def read_mixture(file: str, sha256: str) -> tuple[int, Mixture]:
    """The size of the patches and their mixture, from a file."""
    state = read_state(Path(file))
    facts = facts_of(state, "patches")
    try:
        mixture = Mixture(*(state.tensors[name] for name in ("logits", "means", "factors")))
        count, size = len(mixture.logits), int(facts["size"])
        fits = mixture.means.shape == (count, size**2) and mixture.factors.shape == (count, size**2, size**2)
    except (LookupError, TypeError, ValueError, ArithmeticError) as fault:
        raise FileError(f"says what cannot be ({fault})", where=file, remedy=TRAIN) from None
    if not fits or not bool((mixture.factors.diagonal(dim1=1, dim2=2) > 0).all()):
        raise FileError("holds no mixture of such patches", where=file, remedy=TRAIN)
    return size, mixture
