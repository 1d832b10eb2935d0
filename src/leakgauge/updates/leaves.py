"""Leaves: one tensor of the updates of N candidates.

A likelihood never asks how an update is stored. It asks for ``⟨u, o⟩``, ``‖u‖²``, ``‖u − o‖²`` or a sum over
entries, and a :class:`Leaf` answers for one tensor: :class:`Dense` from the materialised values, the ghost
path's :class:`leakgauge.updates.factored.Factored` from layer inputs and output gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from leakgauge.updates.entrywise import EntryMap, Entrywise, Sloped, product, squared, squared_residual
from leakgauge.updates.trees import rows


@dataclass(frozen=True)
class Sharing:
    """Which observation each candidate belongs to: ``counts[m]`` candidates for observation m, in order."""

    counts: tuple[int, ...]

    @cached_property
    def even(self) -> int | None:
        """The common count, if there is one."""
        return self.counts[0] if len(set(self.counts)) == 1 else None

    @property
    def total(self) -> int:
        return sum(self.counts)

    def segments(self) -> Iterator[tuple[int, slice]]:
        """Every observation that has candidates, with their places."""
        start = 0
        for row, count in enumerate(self.counts):
            if count:
                yield row, slice(start, start + count)
            start += count

    def rows(self, device: torch.device | None = None) -> Tensor:
        """The observation of each candidate, ``[N]``."""
        return torch.repeat_interleave(torch.tensor(self.counts, device=device))

    def only(self, which: Tensor) -> Sharing:
        """The sharing of some of the candidates, given by their places in ascending order."""
        rows = self.rows(which.device)[which]
        return Sharing(tuple(torch.bincount(rows, minlength=len(self.counts)).tolist()))


class Leaf(Protocol):
    """One tensor of the updates of N candidates. Everything returned is ``[N]``; ``received`` is ``‖o‖²``, ``[N]``."""

    @property
    def size(self) -> int: ...
    def square(self) -> Tensor: ...
    def dot(self, observed: Tensor, sharing: Sharing) -> Tensor: ...
    def distance(self, observed: Tensor, sharing: Sharing, received: Tensor) -> Tensor: ...
    def entries(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Tensor: ...
    def mapped(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Leaf: ...
    def scaled(self, factor: Tensor) -> Leaf: ...
    def combined(self, count: int, weight: float) -> Leaf: ...
    def dense(self) -> Dense: ...


@dataclass(frozen=True)
class Dense:
    """A materialised leaf: ``value`` is ``[N, …]``."""

    value: Tensor

    @property
    def size(self) -> int:
        return self.value[0].numel()

    def square(self) -> Tensor:
        return rows(self.value).square().sum(1)

    def dot(self, observed: Tensor, sharing: Sharing) -> Tensor:
        return self.entries(torch.mul, (observed,), sharing)

    def distance(self, observed: Tensor, sharing: Sharing, received: Tensor) -> Tensor:
        return self.entries(squared_residual, (observed,), sharing)

    def entries(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Tensor:
        return rows(self.mapped(fn, others, sharing).value).sum(1)

    def mapped(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Dense:
        """``fn(u_e, other_e, …)``, each candidate with the row of its observation."""
        count = sharing.even
        if count == 1:
            return Dense(fn(self.value, *others))
        if count is not None:
            value = self.value.unflatten(0, (len(sharing.counts), count))
            return Dense(fn(value, *(o.unsqueeze(1) for o in others)).flatten(0, 1))
        return Dense(torch.cat([fn(self.value[at], *(o[row] for o in others)) for row, at in sharing.segments()]))

    def scaled(self, factor: Tensor) -> Dense:
        return Dense(self.value * factor.view(-1, *[1] * (self.value.dim() - 1)))

    def combined(self, count: int, weight: float) -> Dense:
        """``weight`` times the sum over every ``count`` candidates that follow one another."""
        return Dense(weight * self.value.unflatten(0, (-1, count)).sum(1))

    def dense(self) -> Dense:
        return self


@dataclass(frozen=True)
class Mapped:
    """A leaf seen through an entrywise map; the map is applied when entries are asked for."""

    base: Leaf
    fn: Entrywise
    others: tuple[Tensor, ...]
    sharing: Sharing

    @property
    def size(self) -> int:
        return self.base.size

    def square(self) -> Tensor:
        return self.entries(squared, (), self.sharing)

    def dot(self, observed: Tensor, sharing: Sharing) -> Tensor:
        return self.entries(product, (observed,), sharing)

    def distance(self, observed: Tensor, sharing: Sharing, received: Tensor) -> Tensor:
        return self.entries(squared_residual, (observed,), sharing)

    def entries(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Tensor:
        own = len(self.others)
        if isinstance(fn, Sloped) and isinstance(self.fn, EntryMap):
            composed: Entrywise = self.fn.then(fn)
        else:
            composed = lambda u, *rest: fn(self.fn(u, *rest[:own]), *rest[own:])  # noqa: E731
        return self.base.entries(composed, (*self.others, *others), sharing)

    def mapped(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Mapped:
        return Mapped(self, fn, tuple(others), sharing)

    def scaled(self, factor: Tensor) -> Leaf:
        # a factor per candidate does not commute with a general map: form the entries first
        return self.dense().scaled(factor)

    def combined(self, count: int, weight: float) -> Leaf:
        return self.dense().combined(count, weight)

    def dense(self) -> Dense:
        return self.base.dense().mapped(self.fn, self.others, self.sharing)
