"""Defenses as a user writes them from the how-to: a class with ``release``, which says nothing else of itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.defenses import Release, UpdatePart
from leakgauge.types import Context, Tree


def _each(update: Tree, change: Callable[[str, Tensor], Tensor]) -> Release:
    return Release({name: change(name, value) for name, value in update.items()})


@dataclass(frozen=True)
class Times(UpdatePart):
    """A public multiple, also a negative one."""

    factor: float

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: self.factor * u)


@dataclass(frozen=True)
class Shuffled(UpdatePart):
    """A fixed public permutation of the entries of every tensor."""

    seed: int = 0

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def permuted(name: str, u: Tensor) -> Tensor:
            order = torch.randperm(u.numel(), generator=torch.Generator().manual_seed(self.seed + u.numel()))
            return u.flatten()[order].view(u.shape)

        return _each(update, permuted)


@dataclass(frozen=True)
class NoisyBiases(UpdatePart):
    """Noise where it costs least and helps least."""

    std: float = 1.0

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            return u + self.std * torch.randn(u.shape, generator=generator).to(u) if name.endswith("bias") else u

        return _each(update, change)


@dataclass(frozen=True)
class WithoutFirst(UpdatePart):
    """The first layer is not sent."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        first = next(iter(update)).partition(".")[0]
        return _each(update, lambda name, u: torch.zeros_like(u) if name.partition(".")[0] == first else u)


@dataclass(frozen=True)
class Cubed(UpdatePart):
    """A public bijection of every entry."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: u + 10 * u**3)


@dataclass(frozen=True)
class Offset(UpdatePart):
    """One large random number added to all entries of a tensor."""

    std: float = 10.0

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: u + self.std * torch.randn((), generator=generator).to(u))


@dataclass(frozen=True)
class Sometimes(UpdatePart):
    """Noise that drowns the update, in every other release."""

    std: float = 100.0

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        size = self.std * float(torch.rand((), generator=generator) < 0.5)
        return _each(update, lambda name, u: u + size * torch.randn(u.shape, generator=generator).to(u))


@dataclass(frozen=True)
class Salted(UpdatePart):
    """A share of the entries is replaced by loud noise, the others are sent as they are."""

    share: float = 0.1
    std: float = 5.0

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            struck = torch.rand(u.shape, generator=generator) < self.share
            return torch.where(struck, self.std * torch.randn(u.shape, generator=generator).to(u), u)

        return _each(update, change)


@dataclass(frozen=True)
class HeavyTailed(UpdatePart):
    """Noise of a Cauchy law, which has no variance."""

    scale: float

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            return u + self.scale * torch.tan(math.pi * (torch.rand(u.shape, generator=generator) - 0.5)).to(u)

        return _each(update, change)


@dataclass(frozen=True)
class Masked(UpdatePart):
    """Entries times the numbers of a tensor, which is a setting."""

    mask: Tensor

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: u * self.mask[: u.numel()].view(u.shape))


@dataclass(frozen=True)
class InHalfPrecision(UpdatePart):
    """Sent as float16."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: u.half())


@dataclass(frozen=True)
class EightBits(UpdatePart):
    """Whole multiples of a step per tensor, 127 on either side."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            step = (u.abs().max() / 127).clamp(min=1e-20)
            return (u / step).round() * step

        return _each(update, change)


@dataclass(frozen=True)
class Reflected(UpdatePart):
    """Every tensor turned as a whole: reflected at three public planes."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            entries = u.flatten()
            for seed in range(3):
                normal = torch.randn(len(entries), generator=torch.Generator().manual_seed(seed)).to(u)
                entries = entries - 2 * normal * (normal @ entries) / (normal @ normal)
            return entries.view(u.shape)

        return _each(update, change)


@dataclass(frozen=True)
class SecretSign(UpdatePart):
    """The whole update, or its negative, as a coin decides."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        sign = 1.0 if float(torch.rand((), generator=generator)) < 0.5 else -1.0
        return _each(update, lambda name, u: sign * u)


@dataclass(frozen=True)
class SecretSigns(UpdatePart):
    """A coin decides about the sign of every entry."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: u * (2 * (torch.rand(u.shape, generator=generator) < 0.5).to(u) - 1))


@dataclass(frozen=True)
class NoisyLayer(UpdatePart):
    """Noise on the first layer (``place`` 0) or on the last (``place`` −1) alone."""

    place: int
    std: float = 100.0

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in update))

        def change(name: str, u: Tensor) -> Tensor:
            noisy = name.rpartition(".")[0] == layers[self.place]
            return u + self.std * torch.randn(u.shape, generator=generator).to(u) if noisy else u

        return _each(update, change)


@dataclass(frozen=True)
class ThroughNumpy(UpdatePart):
    """A map that cannot be differentiated, because it leaves torch."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: torch.from_numpy(-2.0 * u.detach().numpy()).to(u))


@dataclass(frozen=True)
class Mixed(UpdatePart):
    """The rows of every weight, mixed by a public orthogonal matrix in numpy."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            if u.dim() < 2:
                return u
            turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(len(u), len(u))))
            return torch.from_numpy(turn @ u.detach().double().numpy().reshape(len(u), -1)).reshape(u.shape).to(u)

        return _each(update, change)


@dataclass(frozen=True)
class Drowned(UpdatePart):
    """Uniform noise a thousand times as large as any update."""

    width: float = 1e3

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def change(name: str, u: Tensor) -> Tensor:
            return u + self.width * (torch.rand(u.shape, generator=generator) - 0.5).to(u)

        return _each(update, change)


@dataclass(frozen=True)
class Unrelated(UpdatePart):
    """Noise in place of the update."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: torch.randn(u.shape, generator=generator).to(u))


@dataclass(frozen=True)
class Silent(UpdatePart):
    """Nothing is sent."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return _each(update, lambda name, u: torch.zeros_like(u))
