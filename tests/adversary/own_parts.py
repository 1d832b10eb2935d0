"""Defenses as a new user writes them: with ``release``, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from leakgauge.defenses import Release, UpdatePart
from leakgauge.types import Context, Tree


def _each(fn: Callable[[Tensor], Tensor], update: Tree) -> Release:
    return Release({name: fn(value) for name, value in update.items()})


@dataclass(frozen=True)
class Negated(UpdatePart):
    """``−3 u``."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: -3 * u, update)


@dataclass(frozen=True)
class Shuffled(UpdatePart):
    """A fixed public permutation of all entries."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        entries = torch.cat([u.flatten() for u in update.values()])
        order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(0))
        pieces = entries[order].split([u.numel() for u in update.values()])
        return Release({name: piece.view_as(update[name]) for name, piece in zip(update, pieces, strict=True)})


@dataclass(frozen=True)
class BiasNoise(UpdatePart):
    """Noise on the biases alone."""

    std: float = 1.0

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        def noisy(u: Tensor) -> Tensor:
            return u + self.std * torch.randn(u.shape, generator=generator, dtype=u.dtype)

        return Release({name: noisy(u) if name.endswith("bias") else u for name, u in update.items()})


@dataclass(frozen=True)
class Rotated(UpdatePart):
    """A fixed public rotation of the rows of every tensor."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        def turned(u: Tensor) -> Tensor:
            drawn = torch.randn(len(u), len(u), generator=torch.Generator().manual_seed(len(u)), dtype=u.dtype)
            return (torch.linalg.qr(drawn).Q @ u.reshape(len(u), -1)).view_as(u)

        return _each(turned, update)


@dataclass(frozen=True)
class Dropping(UpdatePart):
    """Half of the entries, drawn anew each time, are not sent."""

    p: float = 0.5

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: u * (torch.rand(u.shape, generator=generator) >= self.p), update)


@dataclass(frozen=True)
class Salted(UpdatePart):
    """A share of the entries, drawn anew each time, is replaced by loud noise."""

    p: float = 0.1
    std: float = 5.0

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        def salted(u: Tensor) -> Tensor:
            struck = torch.rand(u.shape, generator=generator) < self.p
            return torch.where(struck, self.std * torch.randn(u.shape, generator=generator).to(u), u)

        return _each(salted, update)


@dataclass(frozen=True)
class Flipping(UpdatePart):
    """Every entry gets a random sign."""

    p: float = 0.5

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: u * (1 - 2 * (torch.rand(u.shape, generator=generator) < self.p).to(u)), update)


@dataclass(frozen=True)
class Disordered(UpdatePart):
    """The entries of every tensor in an order that is drawn anew."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: u.flatten()[torch.randperm(u.numel(), generator=generator)].view_as(u), update)


@dataclass(frozen=True)
class Louder(UpdatePart):
    """A random negative scale of the whole update."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        gain = 0.5 + torch.rand((), generator=generator)
        return _each(lambda u: -gain.to(u) * u, update)


@dataclass(frozen=True)
class Doubled(UpdatePart):
    """The same numbers in another dtype."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(Tensor.double, update)


@dataclass(frozen=True)
class NumpyRounded(UpdatePart):
    """Fifteen levels per tensor, by numpy: no graph, and no slope."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        def rounded(u: Tensor) -> Tensor:
            values = u.detach().numpy()
            step = max(float(np.abs(values).max()) / 7, 1e-30)
            return torch.from_numpy((np.round(values / step) * step).astype(values.dtype))

        return _each(rounded, update)


@dataclass(frozen=True)
class NumpyNegated(UpdatePart):
    """``−3 u``, by numpy, which refuses tensors that need a gradient."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: torch.from_numpy(-3 * u.numpy()), update)


@dataclass(frozen=True)
class NumpyMixed(UpdatePart):
    """The rows of every weight, mixed by a public orthogonal matrix, in numpy."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        def mixed(u: Tensor) -> Tensor:
            if u.dim() < 2:
                return u
            turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(len(u), len(u))))
            return torch.from_numpy(turn.astype("float32") @ u.detach().numpy().reshape(len(u), -1)).reshape(u.shape)

        return _each(mixed, update)


@dataclass(frozen=True)
class NumpySorted(UpdatePart):
    """The sorted entries of every tensor: neither differentiable nor anything near a slope."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: torch.from_numpy(np.sort(u.numpy().ravel()).reshape(u.shape)), update)


@dataclass(frozen=True)
class UnseededNoise(UpdatePart):
    """Noise that no seed repeats."""

    std: float = 0.01

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        def noisy(u: Tensor) -> Tensor:
            return u + self.std * torch.from_numpy(np.random.default_rng().normal(size=tuple(u.shape))).to(u)

        return _each(noisy, update)


@dataclass(frozen=True)
class Asking(UpdatePart):
    """It looks at the client's inputs."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        assert context is not None
        brightness = context.inputs().mean()
        return _each(lambda u: u.flip(0) if brightness > 0.45 else -u, update)


@dataclass(frozen=True)
class Offset(UpdatePart):
    """One large random number added to all entries of a tensor: their differences are untouched."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return _each(lambda u: u + 10 * torch.randn((), generator=generator), update)


@dataclass(frozen=True)
class SometimesNoise(UpdatePart):
    """Drowned in noise, or sent as it is."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        size = 100.0 * float(torch.rand((), generator=generator) < 0.5)
        return _each(lambda u: u + size * torch.randn(u.shape, generator=generator), update)


@dataclass(frozen=True)
class Rolled(UpdatePart):
    """The entries of every tensor moved on by the same few places, drawn anew each time."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        places = int(torch.randint(8, (), generator=generator))
        return _each(lambda u: u.flatten().roll(places).view_as(u), update)
