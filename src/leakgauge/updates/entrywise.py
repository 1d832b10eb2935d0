"""Functions of the entries of an update that know their own derivative, so that nobody needs a graph for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Entrywise = Callable[..., Tensor]
"""``fn(u_e, other_e, …)``, elementwise; a :class:`Sloped` one also knows its derivative in u."""

Slopes = tuple[Tensor, Tensor, float]
"""``Σ_e f``, and ``∂f/∂u`` as a block and a number that multiplies it (which nobody needs to multiply out)."""


@dataclass(frozen=True)
class Sloped:
    """An entrywise function that knows its derivative: the ghost path then needs no graph for it.

    ``both`` returns the sum over all entries and the derivative, and may work in the memory of u. ``gain``, where it is
    known, is ``scale · (f(u) − f(0)) + shift`` entry by entry, without the rounding of that difference.
    """

    value: Entrywise
    both: Callable[..., Slopes]
    gain: Entrywise | None = None

    def __call__(self, u: Tensor, *others: Tensor) -> Tensor:
        return self.value(u, *others)

    def scaled(self, scale: float, shift: float) -> Sloped:
        """``scale · f + shift``."""
        inner = self.gain

        def both(u: Tensor, *others: Tensor) -> Slopes:
            total, slope, factor = self.both(u, *others)
            return scale * total + shift * u.numel(), slope, scale * factor

        def gain(u: Tensor, *others: Tensor, **how: float) -> Tensor:
            assert inner is not None
            return inner(u, *others, scale=scale * how.get("scale", 1.0), shift=how.get("shift", 0.0))

        return Sloped(lambda u, *others: scale * self.value(u, *others) + shift, both, None if inner is None else gain)


@dataclass(frozen=True)
class EntryMap:
    """An entrywise map of u that knows its derivative, ``slope(u, …)``, so that what is asked of it keeps its own.

    ``others`` counts the tensors that it takes beside u.
    """

    value: Callable[..., Tensor]
    slope: Callable[..., Tensor]
    others: int

    def __call__(self, u: Tensor, *others: Tensor) -> Tensor:
        return self.value(u, *others)

    def then(self, fn: Sloped) -> Sloped:
        """``f(map(u), …)``, which knows its slope too."""

        def both(u: Tensor, *others: Tensor) -> Slopes:
            own, rest = others[: self.others], others[self.others :]
            inner = self.slope(u, *own)
            total, outer, factor = fn.both(self.value(u, *own), *rest)
            return total, outer.mul_(inner), factor

        return Sloped(lambda u, *o: fn.value(self.value(u, *o[: self.others]), *o[self.others :]), both)


def _squared(u: Tensor, o: Tensor) -> Slopes:
    r = u.sub_(o)
    # norms of rows: they need no memory, and one running sum over a whole block would lose digits
    return torch.linalg.vector_norm(r, dim=-1).square().sum(), r, 2.0


def _squared_gain(u: Tensor, o: Tensor, *, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    room = torch.sub(u, o, alpha=2)
    return torch.addcmul(u.new_tensor(shift), u, room, value=scale, out=room)


def _absolute(u: Tensor, o: Tensor) -> Slopes:
    r = u.sub_(o)
    return r.abs().sum(), r.sign_(), 1.0


def _absolute_gain(u: Tensor, o: Tensor, *, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    return (u - o).abs_().sub_(o.abs()).mul_(scale).add_(shift)


squared_residual = Sloped(lambda u, o: (u - o).square(), _squared, _squared_gain)
absolute_residual = Sloped(lambda u, o: (u - o).abs(), _absolute, _absolute_gain)
squared = Sloped(torch.square, lambda u: (torch.linalg.vector_norm(u, dim=-1).square().sum(), u, 2.0))
product = Sloped(torch.mul, lambda u, o: (torch.linalg.vecdot(u, o.expand_as(u)).sum(), o.clone(), 1.0))
masked = EntryMap(torch.mul, lambda u, m: m, others=1)
"""``m u``, with a mask m of zeros and ones."""
excess = EntryMap(
    lambda u, t, kept: torch.where(kept, u, u - torch.clamp(u, -t, t)),
    lambda u, t, kept: torch.logical_or(u.abs() > t, kept),
    others=2,
)
"""u where it is ``kept``, else what of it exceeds ``[−t, t]``."""
soft_sign = EntryMap(lambda u: u * torch.rsqrt(1 + u * u), lambda u: torch.rsqrt(1 + u * u) ** 3, others=0)
"""``u / √(1 + u²)``."""
