"""The updates of N candidates at once: one leaf per tensor, and the examples behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.types import Tree, Updates
from leakgauge.updates.entrywise import Entrywise
from leakgauge.updates.leaves import Dense, Leaf, Sharing
from leakgauge.updates.trees import Stack


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
