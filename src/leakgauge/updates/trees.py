"""Arithmetic on named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.types import Tree, Value
from leakgauge.updates.entrywise import Entrywise


def square(tree: Tree) -> Tensor:
    """``‖u‖²`` over all tensors."""
    return torch.stack([t.square().sum() for t in tree.values()]).sum()


def norm(tree: Tree) -> Tensor:
    """``‖u‖₂`` over all tensors."""
    return square(tree).sqrt()


def mapped(fn: Entrywise, *trees: Tree) -> dict[str, Tensor]:
    """``fn`` tensor by tensor over trees with the same names."""
    return {name: fn(*(tree[name] for tree in trees)) for name in trees[0]}


def over(fn: Callable[[Tensor], Tensor], value: Value) -> Value:
    """``fn`` of a tensor, or of every tensor of a tree."""
    return fn(value) if isinstance(value, Tensor) else {name: fn(one) for name, one in value.items()}


class Stack(dict[str, Tensor]):
    """M trees as one, each tensor ``[M, …]``; remembers ``‖o‖²``, which no candidate changes."""

    @cached_property
    def squares(self) -> dict[str, Tensor]:
        """``‖o‖²`` of each tensor, ``[M]``."""
        return {name: torch.cat([rows(some).square().sum(1) for some in _few(value)]) for name, value in self.items()}


def _few(value: Tensor) -> Iterable[Tensor]:
    """A few rows at a time: the squares of all at once could need as much memory as the observations themselves."""
    size = max(1, 2**20 // max(1, value[0].numel()))
    return (value[start : start + size] for start in range(0, len(value), size))


def stacked(trees: Sequence[Tree]) -> Stack:
    """M trees as one, each tensor ``[M, …]``."""
    return Stack({name: torch.stack([tree[name] for tree in trees]) for name in trees[0]})


def rows(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1)  # a parameter may be a single number, which flatten(1) refuses
