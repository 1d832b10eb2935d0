"""Signs instead of numbers: one bit per entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge.defenses.update.base import Conditions, EntryDensity, UpdatePart
from leakgauge.expr import register
from leakgauge.types import Context, Known, Release, Tree, Updates
from leakgauge.updates import soft_sign, trees

_SHARPNESS = 10.0
"""Of the soft sign, in root mean squares of the tensor. Chosen on train records of MNIST; 3 and 40 end 2 dB lower."""


@register("defense", "sign")
@dataclass(frozen=True, repr=False)
class Sign(UpdatePart):
    """Send the sign of every entry.

    ``o = sign(u)``, with zeros where u is zero. After noise the density is a probability: that of the half line,
    ``P(O = 1) = P(u + noise > 0)``. Without noise it is a map whose slope is zero, and the adversary matches a
    soft sign instead, ``z / √(1 + z²)`` with ``z = 10 u / rms(u)`` in each tensor. No setting is neutral.

    References:
        Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, 2018.
        https://arxiv.org/abs/1802.04434
    """

    post_processing: ClassVar[bool] = True

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release(trees.mapped(torch.sign, update))

    def apply(self, update: Updates, known: Known) -> Updates:
        square = update.square()
        sizes = torch.tensor(update.sizes, dtype=square.dtype, device=square.device)
        rms = (square / sizes).clamp(min=torch.finfo(square.dtype).tiny).sqrt()
        return update.scaled(_SHARPNESS / rms).mapped(soft_sign)

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity:
        def chances(u: Tensor) -> dict[int, Tensor]:
            zero, end = torch.zeros_like(u), torch.full_like(u, math.inf)
            none = torch.full_like(u, -math.inf)
            return {
                1: density.log_mass(u, zero, end),
                0: density.log(u, zero) if density.atom else none,
                -1: density.log_mass(u, -end, zero),
            }

        def log(u: Tensor, o: Tensor) -> Tensor:
            value = torch.full_like(u + o, -math.inf)
            for sign, chance in chances(u).items():
                value = torch.where(o == sign, chance, value)
            return value

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            inside = [
                torch.where((low < sign) & (high > sign), chance, -math.inf) for sign, chance in chances(u).items()
            ]
            return torch.logsumexp(torch.stack(inside), 0)

        return EntryDensity(log, log_mass, atom=density.atom, lattice=True)
