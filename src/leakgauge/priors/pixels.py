"""Priors on single entries and on the size of an image: the pixel range and the norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.expr import register
from leakgauge.priors.base import PriorPart, along, require
from leakgauge.types import Candidate


@register("prior", "pixel_range")
@dataclass(frozen=True, repr=False)
class PixelRange(PriorPart):
    """Minus the squared distance of each image to the box ``[low, high]``, mean over the batch.

    ``−(1/B) Σ_b Σ_e max(low − x_be, 0, x_be − high)²``, in the space of the inputs, which is [0, 1] for images.
    Inside the box it is 0 and has no gradient; a solver that clips to the box does not need it. The released code of
    the Bayes paper squares the distance, its text does not; this follows the code.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Table 5. https://arxiv.org/abs/2111.04706
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        with guards.together():
            low = guards.finite(self.low, "low", "pixel_range")
            high = guards.finite(self.high, "high", "pixel_range")
        require(low < high, "pixel_range", "low must lie below high", (self.low, self.high))

    def __call__(self, candidate: Candidate) -> Tensor:
        x = candidate.inputs
        outside = (along(self.low, x) - x).clamp_min(0) + (x - along(self.high, x)).clamp_min(0)
        return -outside.square().flatten(2).sum(2).mean(1)


@register("prior", "norm")
@dataclass(frozen=True, repr=False)
class Norm(PriorPart):
    """Minus the p-norm of each image, mean over the batch: ``−(1/B) Σ_b ‖x_b‖_p``, for finite ``p ≥ 1``.

    GradInversion's image norm is ``p = 2`` of the whole batch; per image, as here, the weight does not
    depend on the batch size. It is not squared, so its gradient does not vanish near 0; at exactly 0 the gradient is 0.

    References:
        Yin et al., See through Gradients: Image Batch Recovery via GradInversion, 2021.
        https://arxiv.org/abs/2104.07586
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        guards.inside(self.p, "p", "norm", 1.0, math.inf, closed_low=True)

    def __call__(self, candidate: Candidate) -> Tensor:
        flat = candidate.inputs.flatten(2)
        powers = torch.as_tensor(self.p, dtype=torch.float64).reshape(-1).tolist()
        # torch takes one order at a time: with one for all problems, which is the rule, this is one call
        groups = torch.split(flat, 1) if len(powers) > 1 else (flat,)
        norms = [torch.linalg.vector_norm(x, p, dim=2) for x, p in zip(groups, powers, strict=True)]
        return -torch.cat(norms).mean(1)
