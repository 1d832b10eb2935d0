"""Arithmetic on named tensors, and :class:`Batch`: the updates of N candidates.

A likelihood never asks how an update is stored. It asks for ``⟨u, o⟩``, ``‖u‖²``, ``‖u − o‖²`` or a sum over
entries, and a :class:`Leaf` answers for one tensor: :class:`Dense` from the materialised values, the ghost
path's ``Factored`` (room ``adversary``) from layer inputs and output gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from leakgauge.types import Tree, Updates

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


def square(tree: Tree) -> Tensor:
    """``‖u‖²`` over all tensors."""
    return torch.stack([t.square().sum() for t in tree.values()]).sum()


def norm(tree: Tree) -> Tensor:
    """``‖u‖₂`` over all tensors."""
    return square(tree).sqrt()


def mapped(fn: Entrywise, *trees: Tree) -> dict[str, Tensor]:
    """``fn`` tensor by tensor over trees with the same names."""
    return {name: fn(*(tree[name] for tree in trees)) for name in trees[0]}


class Stack(dict[str, Tensor]):
    """M trees as one, each tensor ``[M, …]``; remembers ``‖o‖²``, which no candidate changes."""

    @cached_property
    def squares(self) -> dict[str, Tensor]:
        """``‖o‖²`` of each tensor, ``[M]``."""
        return {name: torch.cat([_rows(some).square().sum(1) for some in _few(value)]) for name, value in self.items()}


def _few(value: Tensor) -> Iterable[Tensor]:
    """A few rows at a time: the squares of all at once could need as much memory as the observations themselves."""
    size = max(1, 2**20 // max(1, value[0].numel()))
    return (value[start : start + size] for start in range(0, len(value), size))


def stacked(trees: Sequence[Tree]) -> Stack:
    """M trees as one, each tensor ``[M, …]``."""
    return Stack({name: torch.stack([tree[name] for tree in trees]) for name in trees[0]})


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
        return _rows(self.value).square().sum(1)

    def dot(self, observed: Tensor, sharing: Sharing) -> Tensor:
        return self.entries(torch.mul, (observed,), sharing)

    def distance(self, observed: Tensor, sharing: Sharing, received: Tensor) -> Tensor:
        return self.entries(squared_residual, (observed,), sharing)

    def entries(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Tensor:
        return _rows(self.mapped(fn, others, sharing).value).sum(1)

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


def _rows(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1)  # a parameter may be a single number, which flatten(1) refuses


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


@dataclass(frozen=True)
class Examples:
    """The updates of the examples of N candidates, ``count`` each, made when asked for; their sum counts ``weight``."""

    alone: Callable[[], Batch]
    count: int
    weight: float


@dataclass(frozen=True)
class Batch:
    """The updates of N candidates (see :class:`leakgauge.types.Updates`), as one leaf per tensor.

    ``examples`` is None where every candidate is one example: its update is then that example's.
    """

    leaves: Mapping[str, Leaf]
    sharing: Sharing
    examples: Examples | None = None

    @classmethod
    def of(cls, update: Tree, counts: Sequence[int] | None = None) -> Batch:
        """Materialised updates ``[N, …]``; by default each has an observation of its own."""
        total = len(next(iter(update.values())))
        return cls({name: Dense(value) for name, value in update.items()}, Sharing(tuple(counts or (1,) * total)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.leaves)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(leaf.size for leaf in self.leaves.values())

    def _stack(self, ask: Callable[[str, Leaf], Tensor]) -> Tensor:
        return torch.stack([ask(name, leaf) for name, leaf in self.leaves.items()], dim=1)

    def square(self) -> Tensor:
        return self._stack(lambda _, leaf: leaf.square())

    def dot(self, observed: Tree) -> Tensor:
        return self._stack(lambda name, leaf: leaf.dot(observed[name], self.sharing))

    def received(self, observed: Tree) -> Tensor:
        squares = observed.squares if isinstance(observed, Stack) else Stack(observed).squares
        rows = self.sharing.rows(next(iter(observed.values())).device)
        return torch.stack([squares[name] for name in self.names], dim=1)[rows]

    def distance(self, observed: Tree) -> Tensor:
        received = dict(zip(self.names, self.received(observed).unbind(1), strict=True))
        return self._stack(lambda name, leaf: leaf.distance(observed[name], self.sharing, received[name]))

    def entries(self, fn: Entrywise, *others: Tree) -> Tensor:
        return self._stack(lambda name, leaf: leaf.entries(fn, [o[name] for o in others], self.sharing))

    def scaled(self, factor: Tensor) -> Batch:
        columns = factor.unbind(1) if factor.dim() == 2 else [factor] * len(self.leaves)
        return self._with({name: leaf.scaled(s) for (name, leaf), s in zip(self.leaves.items(), columns, strict=True)})

    def mapped(self, fn: Entrywise, *others: Tree) -> Batch:
        return self._with(
            {name: leaf.mapped(fn, [o[name] for o in others], self.sharing) for name, leaf in self.leaves.items()}
        )

    def each(self, fn: Callable[[Updates], Updates]) -> Batch:
        alone = fn(self if self.examples is None else self.examples.alone())
        assert isinstance(alone, Batch)
        if self.examples is None:
            return alone
        how = self.examples.count, self.examples.weight
        return self._with({name: leaf.combined(*how) for name, leaf in alone.leaves.items()})

    def only(self, names: Sequence[str]) -> Batch:
        return self._with({name: self.leaves[name] for name in names})

    def dense(self) -> dict[str, Tensor]:
        """The materialised updates, ``[N, …]``."""
        return {name: leaf.dense().value for name, leaf in self.leaves.items()}

    def _with(self, leaves: Mapping[str, Leaf]) -> Batch:
        return Batch(leaves, self.sharing)
