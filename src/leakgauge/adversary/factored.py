"""A leaf that is never formed: the gradient of a linear map from its inputs and output gradients.

For a weight with ``G_n = Σ_r d_{n,r} a_{n,r}ᵀ`` (r runs over the positions of problem n: examples, tokens,
pixels of a convolution) every likelihood needs G only through ``⟨G, o⟩``, ``‖G‖²`` or a sum over entries.
The derivative with respect to a and d needs ``P = U a`` and ``Q = Uᵀ d`` with ``U = ∂/∂G``: both come out of
the one pass over the observed tensor that the value needs, and are kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from leakgauge.tree import Dense, Entrywise, Sharing, Sloped, squared_residual

BLOCK = 2**18
"""Entries of a block of rows: one megabyte in float32, so that a block is still in the cache when it is used again."""


@dataclass(frozen=True)
class Factored:
    """``G_n = Σ_r d_{n,r} a_{n,r}ᵀ``: ``a`` is ``[N, R, K]``, ``d`` is ``[N, R, O]``, the tensor has ``shape``."""

    a: Tensor
    d: Tensor
    shape: torch.Size

    def square(self) -> Tensor:
        """``‖G‖² = Σ_{r,s} ⟨a_r, a_s⟩ ⟨d_r, d_s⟩``."""
        if self.a.shape[1] == 1:
            return self.a.flatten(1).square().sum(1) * self.d.flatten(1).square().sum(1)
        gram_a, gram_d = (t @ t.transpose(1, 2) for t in (self.a, self.d))
        return (gram_a * gram_d).flatten(1).sum(1)

    def dot(self, observed: Tensor, sharing: Sharing) -> Tensor:
        made: Tensor = _Dot.apply(self.a, self.d, self._rows(observed), sharing)
        return made

    def distance(self, observed: Tensor, sharing: Sharing) -> Tensor:
        return self.entries(squared_residual, (observed,), sharing)

    def entries(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Tensor:
        made: Tensor = _Entries.apply(self.a, self.d, _slope_of(fn), sharing, *map(self._rows, others))
        return made

    def scaled(self, factor: Tensor) -> Factored:
        return Factored(self.a, self.d * factor.view(-1, 1, 1), self.shape)

    def dense(self) -> Dense:
        return Dense((self.d.transpose(1, 2) @ self.a).unflatten(1, self.shape[:1]).reshape(-1, *self.shape))

    def _rows(self, other: Tensor) -> Tensor:
        """``[M, O, K]``, without a copy where entries are broadcast."""
        if other.shape[1:] != self.shape:
            other = other.expand(len(other), *self.shape)
        return other.flatten(2)


Slope = Callable[..., tuple[Tensor, Tensor]]
"""``(G block, other blocks…) → (sum over entries [c], U block)``."""


def _slope_of(fn: Entrywise) -> Slope:
    if isinstance(fn, Sloped):

        def known(block: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
            value, u = fn.both(block, *others)
            return value.flatten(1).sum(1), u

        return known

    def by_autograd(block: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            block = block.detach().requires_grad_()
            value = fn(block, *others).flatten(1).sum(1)
            (u,) = torch.autograd.grad(value.sum(), block)
        return value.detach(), u

    return by_autograd


def _blocks(rows: int, width: int) -> Iterator[slice]:
    size = max(1, BLOCK // max(width, 1))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


class _Dot(torch.autograd.Function):
    """``⟨G_n, o_n⟩`` in one pass over o."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, d: Tensor, observed: Tensor, sharing: Sharing) -> Tensor:
        p, q = torch.empty_like(d), torch.empty_like(a)
        for row, at in sharing.segments():
            o, flat_a, flat_d = observed[row], a[at].flatten(0, 1), d[at].flatten(0, 1)
            if len(flat_a) == 1:
                p[at], q[at] = _matvecs(o, flat_a[0], flat_d[0])
            else:
                p[at], q[at] = (flat_a @ o.t()).view_as(d[at]), (flat_d @ o).view_as(a[at])
        ctx.save_for_backward(p, q)
        return (p * d).flatten(1).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None, None]:
        p, q = ctx.saved_tensors
        s = slope.view(-1, 1, 1)
        return s * q, s * p, None, None


def _matvecs(o: Tensor, a: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """``o a`` and ``oᵀ d``, block by block: the second product finds the block still in the cache."""
    p, q = torch.empty_like(d), torch.zeros_like(a)
    for rows in _blocks(*o.shape):
        block = o[rows]
        torch.mv(block, a, out=p[rows])
        q += d[rows] @ block
    return p, q


class _Entries(torch.autograd.Function):
    """``Σ_e f(G_e, other_e, …)`` by blocks of rows, with f's slope taken on the block."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, d: Tensor, slope: Slope, sharing: Sharing, *others: Tensor) -> Tensor:
        value = a.new_zeros(len(a))
        p, q = torch.empty_like(d), torch.zeros_like(a)
        for row, at in sharing.segments():
            for c in _split(at, a.shape[2]):
                value[c] = _segment(a[c], d[c], p[c], q[c], slope, [o[row] for o in others])
        ctx.save_for_backward(p, q)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        p, q = ctx.saved_tensors
        s = slope.view(-1, 1, 1)
        return (s * q, s * p, *[None] * (len(ctx.needs_input_grad) - 2))


def _split(at: slice, width: int) -> Iterator[slice]:
    """Few enough candidates at once that a block still has several rows."""
    size = max(1, BLOCK // (8 * max(width, 1)))
    return (slice(start, min(start + size, at.stop)) for start in range(at.start, at.stop, size))


def _segment(a: Tensor, d: Tensor, p: Tensor, q: Tensor, slope: Slope, others: list[Tensor]) -> Tensor:
    """The candidates of one observation; fills p and q in place."""
    value = a.new_zeros(len(a))
    room: Tensor | None = None  # one block's memory, used again for the next
    for rows in _blocks(d.shape[2], len(a) * a.shape[2]):
        columns = d[:, :, rows].transpose(1, 2)
        if room is None or room.shape[1] != columns.shape[1]:
            room = a.new_empty(len(a), columns.shape[1], a.shape[2])
        outer = torch.mul if a.shape[1] == 1 else torch.bmm
        block = outer(columns, a, out=room)
        partial, u = slope(block, *(o[rows] for o in others))
        value += partial
        if len(a) == a.shape[1] == 1:
            torch.mv(u[0], a[0, 0], out=p[0, 0, rows])
            q[0, 0] += d[0, 0, rows] @ u[0]
        else:
            p[:, :, rows] = a @ u.transpose(1, 2)
            q.baddbmm_(d[:, :, rows], u)
    return value


__all__ = ["Factored"]
