"""Defenses that a reader of "Add a defense" writes: with a density, with nuisances, and with ``release`` alone.

The first three are that page's own examples; the others are what one writes next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from leakgauge.attacks import Hint, hints
from leakgauge.defenses import Bernoulli, EntryDensity, Nuisance, Release, Uniform, UpdatePart
from leakgauge.types import Context, Tree


@dataclass(frozen=True)
class LogisticNoise(UpdatePart):
    """``o = u + s log(U / (1 − U))``, with its density."""

    scale: float

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def noisy(u: Tensor) -> Tensor:
            uniform = torch.rand(u.shape, generator=generator, dtype=u.dtype).clamp(1e-7, 1 - 1e-7)
            return u + self.scale * torch.logit(uniform)

        return Release({name: noisy(u) for name, u in update.items()})

    def entry_density(self) -> EntryDensity:
        def log(u: Tensor, o: Tensor) -> Tensor:
            z = (o - u) / self.scale
            return logsigmoid(z) + logsigmoid(-z) - math.log(self.scale)

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            a, b = (low - u) / self.scale, (high - u) / self.scale
            return logsigmoid(b) + logsigmoid(-a) + torch.log(-torch.expm1(a - b))

        return EntryDensity(log, log_mass)


@dataclass(frozen=True)
class FlipSigns(UpdatePart):
    """``o = s ⊙ u``: every sign is −1 with probability p; a nuisance that is hidden or granted."""

    p: float

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("flips", per="entry", law=Bernoulli(1 - self.p)),)

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        flips = {name: (torch.rand(u.shape, generator=generator) < self.p).to(u) for name, u in update.items()}
        return Release({name: u * (1 - 2 * flips[name]) for name, u in update.items()}, {"flips": flips})

    def apply(self, update: Any, known: Mapping[str, Any]) -> Any:
        return update.mapped(lambda u, flip: u * (1 - 2 * flip), known["flips"]) if "flips" in known else None

    def before(self, density: EntryDensity) -> EntryDensity:
        same, flipped = torch.tensor([1 - self.p, self.p]).log()

        def either(log: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return lambda u, *rest: torch.logaddexp(same + log(u, *rest), flipped + log(-u, *rest))

        return EntryDensity(either(density.log), either(density.log_mass))


@dataclass(frozen=True)
class Gain(UpdatePart):
    """``o = g u`` with a hidden g, one for the whole update; a hint says that only directions count."""

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("gain", per="update", law=Uniform(0.5, 2.0)),)

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        gain = Uniform(0.5, 2.0).sample((), generator=generator)
        drawn = {name: gain.view([1] * u.dim()).to(u) for name, u in update.items()}
        return Release({name: gain * u for name, u in update.items()}, {"gain": drawn})


@hints(Gain)
def _knows(part: Gain) -> Hint:
    return Hint(scales=True)


@dataclass(frozen=True)
class KeepHalf(UpdatePart):
    """Half of the entries, drawn anew for every update; ``release`` alone."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return Release({name: u * (torch.rand(u.shape, generator=generator) < 0.5) for name, u in update.items()})


@dataclass(frozen=True)
class Rounded(UpdatePart):
    """Every entry to a multiple of ``step``; ``release`` alone."""

    step: float

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return Release({name: (u / self.step).round() * self.step for name, u in update.items()})


@dataclass(frozen=True)
class Jitter(UpdatePart):
    """Uniform noise of a fixed width; ``release`` alone."""

    width: float

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return Release(
            {
                name: u + self.width * (torch.rand(u.shape, generator=generator) - 0.5).to(u)
                for name, u in update.items()
            }
        )


@dataclass(frozen=True)
class RandomScale(UpdatePart):
    """Every tensor times its own secret positive number; ``release`` alone, the scale is not declared."""

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def scaled(u: Tensor) -> Tensor:
            return u * (0.5 + torch.rand((), generator=generator)).to(u)

        return Release({name: scaled(u) for name, u in update.items()})


@dataclass(frozen=True)
class Constant(UpdatePart):
    """The same numbers from every client; ``release`` alone."""

    value: float = 0.25

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return Release({name: torch.full_like(u, self.value) for name, u in update.items()})
