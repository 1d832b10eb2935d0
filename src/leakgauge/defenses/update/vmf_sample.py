"""Draws from the von Mises-Fisher distribution, in any dimension, at the price of p normals.

A draw is ``y = w m + √(1 − w²) v`` with v uniform on the unit sphere orthogonal to m, and w by Wood's
rejection, whose acceptance stays above 0.6 for every p and κ. Only w needs care, and it is a scalar: it is carried
as the gap ``1 − w``, in float64, since w = 1 to machine precision already at κ = 10¹⁶.

References:
    Wood, Simulation of the von Mises Fisher Distribution, 1994. https://doi.org/10.1080/03610919408813161
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.errors import DomainError

_FORMULA = "von Mises-Fisher sampler"
_BLOCK = 8192


def sample_gaps(dim: int, kappa: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """``size`` draws of ``1 − ⟨m, y⟩``, each in [0, 2].

    Wood's envelope: ``Z ~ Beta((p−1)/2, (p−1)/2)``, ``1 − W = 2bZ / (1 − (1−b)Z)`` with
    ``b = (p−1) / (2κ + √(4κ² + (p−1)²))``; accept with probability
    ``exp(κ(W − x₀) + (p−1) log((1 − x₀W)/(1 − x₀²)))``, ``x₀ = (1−b)/(1+b)``. All differences from 1 are formed
    before they are rounded.
    """
    p = guards.count(dim, "dim", _FORMULA)
    k = guards.non_negative(kappa, "kappa", _FORMULA)
    n = guards.count(size, "size", _FORMULA, least=0)
    if p == 1:  # the sphere is two points
        return np.where(rng.random(n) < math.exp(-2 * k) / (1 + math.exp(-2 * k)), 2.0, 0.0)
    half = (p - 1) / 2
    b = (p - 1) / (2 * k + math.hypot(2 * k, p - 1))
    gap0, x0 = 2 * b / (1 + b), (1 - b) / (1 + b)
    gaps, filled = np.empty(n), 0
    while filled < n:
        z = rng.beta(half, half, size=int(1.6 * (n - filled)) + 8)
        gap = 2 * b * z / (1 - (1 - b) * z)
        # (1 − x₀W)/(1 − x₀²) = 1 + x₀ (x₀ − W)/(1 − x₀²), and W − x₀ = gap0 − gap
        log_ratio = k * (gap0 - gap) + (p - 1) * np.log1p(x0 * (gap - gap0) / (gap0 * (1 + x0)))
        accepted = gap[np.log1p(-rng.random(z.size)) <= log_ratio][: n - filled]
        gaps[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return gaps


def sample(mean: Tensor, kappa: float, *, generator: Generator) -> Tensor:
    """One draw around ``mean``, a unit vector of any shape; dtype, shape and device are those of ``mean``.

    The normals come from ``generator``, and so does the seed of the scalar part: the draw is a function of the
    generator's state. A mean that is not of unit length is refused: scaling it is the mechanism's business.
    """
    length = math.sqrt(_dot(mean, mean))
    if not abs(length - 1) <= 1e-3:
        raise DomainError(f"mean must have length 1, got {length:g}", where=_FORMULA)
    device = generator.device
    seed = int(torch.randint(2**63 - 1, (1,), generator=generator, device=device))
    gap = float(sample_gaps(mean.numel(), kappa, 1, np.random.default_rng(seed))[0])
    if mean.numel() == 1:
        return mean * (1 - gap)
    tangent = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=device).to(mean.device)
    tangent.add_(mean, alpha=-_dot(tangent, mean) / length**2)
    scale = math.sqrt(gap * (2 - gap) / _dot(tangent, tangent))
    return tangent.mul_(scale).add_(mean, alpha=(1 - gap) / length)


def _dot(first: Tensor, second: Tensor) -> float:
    # in blocks: one float32 dot product of 10⁷ entries is off by 1e-4 of the norm
    blocks = zip(torch.split(first.reshape(-1), _BLOCK), torch.split(second.reshape(-1), _BLOCK), strict=True)
    return math.fsum(float(torch.dot(a, b)) for a, b in blocks)
