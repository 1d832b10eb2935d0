"""The von Mises-Fisher mechanism: only the direction of an update leaves, and that with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.update.base import Support, UpdatePart
from leakgauge.defenses.update.promises import VonMisesFisherNoise
from leakgauge.defenses.update.vmf_math import log_peak
from leakgauge.defenses.update.vmf_sample import sample
from leakgauge.expr import register
from leakgauge.special import log_sphere_area
from leakgauge.types import Context, Known, Release, Tree, Updates


@register("defense", "vmf")
@dataclass(frozen=True, repr=False)
class VonMisesFisher(UpdatePart):
    """Scale an update to the unit sphere, then draw around it.

    ``o ~ f(o | u) ∝ exp(κ ⟨u/‖u‖, o⟩)`` on the unit sphere of all entries, with ``κ = kappa``;
    ``log p(o | u) = log C(p, κ) − κ (1 − cos(u, o)) − log A(S^{p−1})``, a density per area. The norm does not leave at
    all; an update of zeros has no direction, and a uniform one leaves. κ = 0 releases nothing. Noise on
    the sphere is not independent entry by entry: nothing may act on it, and no hidden mask before it is summed out.

    After ``clip(norm=c, per="example")`` this is DP-SGD with von Mises-Fisher noise.

    References:
        Weggenmann and Kerschbaum, Differential Privacy for Directional Data, 2021.
        https://doi.org/10.1145/3460120.3484734
        Biswas et al., Bayes' capacity as a measure for reconstruction attacks in federated learning, 2024, Algorithm 2.
        https://arxiv.org/abs/2406.13569
    """

    kappa: float
    support: ClassVar[Support] = "sphere"
    post_processing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        guards.non_negative(self.kappa, "kappa", "vmf")

    @property
    def noise_law(self) -> VonMisesFisherNoise:
        return VonMisesFisherNoise(self.kappa)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        flat = torch.cat([u.reshape(-1) for u in update.values()])
        some = bool(flat.any())
        drawn = sample(_unit(flat if some else flat + 1), self.kappa if some else 0.0, generator=generator)
        pieces = drawn.split([u.numel() for u in update.values()])
        return Release({n: o.reshape(u.shape) for (n, u), o in zip(update.items(), pieces, strict=True)})

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        dim = sum(observed[name][0].numel() for name in update.names)
        square, received = update.square().sum(1), update.received(observed).sum(1)
        tiny = torch.finfo(square.dtype).tiny
        cosine = update.dot(observed).sum(1) / (square.clamp(min=tiny).sqrt() * received.clamp(min=tiny).sqrt())
        uniform = -log_sphere_area(dim)
        return torch.where(square > 0, uniform + log_peak(dim, self.kappa) - self.kappa * (1 - cosine), uniform)


def _unit(flat: Tensor) -> Tensor:
    # the largest entry first: the square of a tiny or huge one leaves float32
    scaled = flat / flat.abs().amax()
    return scaled / math.sqrt(math.fsum(float(torch.dot(b, b)) for b in scaled.split(2**13)))
