"""Tensors of N problems under names: keep some of the problems, or take some of them from elsewhere."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor


class Rows:
    """A dataclass whose fields are tensors ``[N, …]``, or such dataclasses themselves."""

    def at(self, rows: Tensor) -> Self:
        """The problems at ``rows``, places or a mask."""
        return self._mapped(lambda value: value.at(rows) if isinstance(value, Rows) else value[rows])

    def where(self, which: Tensor, other: Self) -> Self:
        """``other`` for the problems of a mask ``[N]``, this one for the rest."""
        return self._mapped(lambda mine, theirs: _chosen(which, theirs, mine), other)

    def _mapped(self, fn: Any, *others: Self) -> Self:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return replace(self, **{name: fn(*(getattr(one, name) for one in (self, *others))) for name in names})  # type: ignore[type-var]


def _chosen(which: Tensor, theirs: Any, mine: Any) -> Any:
    if isinstance(mine, Rows):
        return mine.where(which, theirs)
    return torch.where(which.view(-1, *[1] * (mine.dim() - 1)), theirs, mine)
