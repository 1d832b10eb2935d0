"""Maps that mix entries linearly, found by probing: ``o = A u + b``, whatever library computes them.

A release through numpy has no slope that torch could follow. Where it is linear, which is tested first, its columns are
its releases of single entries: as many as the update has entries, so that small networks alone are probed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.adversary.simulation.rearrangement import Run

MOST = 20_000
"""The largest update that is probed entry by entry."""
FULLEST = 5_000_000
"""The most entries of A that are stored: a map that mixes everything with everything is left to smaller networks."""
ROUNDING = 1e-4
"""What a map in float32 may lack of being linear, beside the largest release of an entry."""


@dataclass(frozen=True, eq=False)
class Linear:
    """``o = A u + b`` on entries ``[N, P]``, with a sparse A."""

    matrix: Tensor
    offset: Tensor

    def __call__(self, entries: Tensor) -> Tensor:
        mixed: Tensor = torch.sparse.mm(self.matrix.to(entries), entries.T).T
        return mixed + self.offset.to(entries)


def linear(run: Run, inputs: Sequence[Tensor], sizes: Tensor) -> Linear | None:
    """The linear map that a deterministic release is, checked on every known update; None if it is none, or too large.

    ``sizes`` are those that the entries usually have.
    """
    if len(sizes) > MOST or not _adds_up(run, inputs, sizes):
        return None
    offset = run(torch.zeros_like(sizes))
    matrix = _matrix(run, offset, sizes)
    if matrix is None:
        return None
    mixing = Linear(matrix, offset)
    outputs = torch.stack([run(one) for one in inputs])
    gaps = (mixing(torch.stack([one.double() for one in inputs])) - outputs).abs().amax(0)
    return mixing if _is_rounding(gaps, (outputs - offset).abs().amax(0)) else None


def _adds_up(run: Run, inputs: Sequence[Tensor], sizes: Tensor) -> bool:
    """``f(v + w) − f(0) = f(v) − f(0) + f(w) − f(0)``, for known updates and multiples of one that is drawn."""
    chance = torch.Generator().manual_seed(0)
    drawn = sizes * torch.randn(len(sizes), generator=chance, dtype=torch.float64)
    zero = run(torch.zeros_like(sizes))
    gaps, moved = [], []
    for one in inputs:
        for factor in (-3.0, 0.3):
            together = run(one.double() + factor * drawn)
            gaps.append(together - (run(one.double()) + run(factor * drawn) - zero))
            moved.append(together - zero)
    return _is_rounding(torch.stack(gaps).abs().amax(0), torch.stack(moved).abs().amax(0))


def _is_rounding(gaps: Tensor, sizes: Tensor) -> bool:
    """Entry by entry: a map that bends one small tensor alone is not linear."""
    least = torch.finfo(torch.float32).eps * float(sizes.max())
    return bool((gaps <= ROUNDING * sizes + least).all())


def _matrix(run: Run, offset: Tensor, sizes: Tensor) -> Tensor | None:
    """A, column by column; None where it is too full to be stored."""
    rows, columns, values, stored = [], [], [], 0
    for place, size in enumerate(sizes.tolist()):
        probe = torch.zeros_like(sizes)
        probe[place] = size
        column = (run(probe) - offset) / size
        live = (column.abs() > 1e-7 * column.abs().max()).nonzero().flatten()
        stored += len(live)
        if stored > FULLEST:
            return None
        rows.append(live)
        columns.append(torch.full_like(live, place))
        values.append(column[live])
    places = torch.stack([torch.cat(rows), torch.cat(columns)])
    shape = (len(offset), len(sizes))
    return torch.sparse_coo_tensor(places, torch.cat(values), shape, check_invariants=False).coalesce()


__all__ = ["Linear", "linear"]
