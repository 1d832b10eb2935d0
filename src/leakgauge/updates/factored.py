"""A leaf that is never formed: the gradient of a linear map from its inputs and output gradients.

For a weight with ``G_n = Σ_r d_{n,r} a_{n,r}ᵀ`` (r runs over the positions of problem n: examples, tokens,
pixels of a convolution) every likelihood needs G only through ``⟨G, o⟩``, ``‖G‖²`` or a sum over entries.
The derivative with respect to a and d needs ``P = U a`` and ``Q = Uᵀ d`` with ``U = ∂/∂G``: both come out of
the one pass over the observed tensor that the value needs, and are kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from leakgauge.updates.entrywise import Entrywise, Sloped, Slopes, masked, squared_residual
from leakgauge.updates.leaves import Dense, Leaf, Mapped, Sharing

BLOCK = 2**19
"""Entries of a block of rows: two megabytes in float32, still in the cache when used again, and few calls in all."""

CANCELLED = 1e-2
"""Below this fraction of ``‖o‖²`` a squared distance is taken from the residual: its three terms would cancel."""


@dataclass(frozen=True)
class Factored:
    """``G_n = Σ_r d_{n,r} a_{n,r}ᵀ``: ``a`` is ``[N, R, K]``, ``d`` is ``[N, R, O]``, the tensor has ``shape``."""

    a: Tensor
    d: Tensor
    shape: torch.Size

    @property
    def size(self) -> int:
        return self.shape.numel()

    def square(self) -> Tensor:
        """``‖G‖² = Σ_{r,s} ⟨a_r, a_s⟩ ⟨d_r, d_s⟩``."""
        if self.a.shape[1] == 1:
            return self.a.flatten(1).square().sum(1) * self.d.flatten(1).square().sum(1)
        gram_a, gram_d = (t @ t.transpose(1, 2) for t in (self.a, self.d))
        return (gram_a * gram_d).flatten(1).sum(1)

    def dot(self, observed: Tensor, sharing: Sharing) -> Tensor:
        return _dot(self.a, self.d, self._rows(observed), sharing)

    def distance(self, observed: Tensor, sharing: Sharing, received: Tensor) -> Tensor:
        """``‖G‖² − 2⟨G, o⟩ + ‖o‖²``; candidates so near that this cancels have their residual formed."""
        far = self.square() - 2 * self.dot(observed, sharing) + received
        near = (far.detach() < CANCELLED * received).nonzero().squeeze(1)
        if not len(near):
            return far
        few = Factored(self.a[near], self.d[near], self.shape)
        return far.index_copy(0, near, few.entries(squared_residual, (observed,), sharing.only(near)))

    def entries(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Tensor:
        return _entries(self.a, self.d, _slopes_of(fn), sharing, *map(self._rows, others))

    def mapped(self, fn: Entrywise, others: Sequence[Tensor], sharing: Sharing) -> Leaf:
        """A mask of whole columns masks the inputs, ``G ⊙ m = Σ_r d_r (a_r ⊙ m)ᵀ``; other maps wait for the entries."""
        if fn is masked and others[0].shape[1] == 1:
            columns = others[0].expand(-1, 1, *self.shape[1:]).flatten(2)
            return Factored(self.a * columns[sharing.rows(columns.device)], self.d, self.shape)
        return Mapped(self, fn, tuple(others), sharing)

    def scaled(self, factor: Tensor) -> Factored:
        return Factored(self.a, self.d * factor.view(-1, 1, 1), self.shape)

    def combined(self, count: int, weight: float) -> Factored:
        """The positions of every ``count`` candidates become those of one."""
        a, d = (t.unflatten(0, (-1, count)).flatten(1, 2) for t in (self.a, weight * self.d))
        return Factored(a, d, self.shape)

    def dense(self) -> Dense:
        return Dense(formed(self.a, self.d).reshape(-1, *self.shape))

    def _rows(self, other: Tensor) -> Tensor:
        """``[M, O, K]``, without a copy where entries are broadcast."""
        if other.shape[1:] != self.shape:
            other = other.expand(len(other), *self.shape)
        return other.flatten(2)


class _Formed(torch.autograd.Function):
    """``G_n = Σ_r d_{n,r} a_{n,r}ᵀ`` after all, ``[N, O, K]``; the derivatives keep the factors' memory layout."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, d: Tensor) -> Tensor:
        ctx.save_for_backward(a, d)
        return torch.bmm(d.transpose(1, 2), a)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor, Tensor]:
        a, d = ctx.saved_tensors  # products again: differentiable once more, where a solver linearises the update
        if a.stride(2) == 1:
            return torch.bmm(d, u), torch.bmm(a, u.transpose(1, 2))
        flipped = torch.bmm(u.transpose(1, 2), d.transpose(1, 2)), torch.bmm(u, a.transpose(1, 2))
        return flipped[0].transpose(1, 2), flipped[1].transpose(1, 2)


class _Dot(torch.autograd.Function):
    """``⟨G_n, o_n⟩`` in one pass over o: the second product finds each block still in the cache."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, d: Tensor, observed: Tensor, sharing: Sharing) -> Tensor:
        p, q = torch.empty_like(d, memory_format=torch.contiguous_format), torch.zeros_like(a).contiguous()
        size = _block_rows(a.shape[2])
        for row, at in sharing.segments():
            flat_a, flat_d, flat_q = a[at].flatten(0, 1), d[at].flatten(0, 1), q[at].flatten(0, 1)
            pieces = observed[row].split(size), flat_d.split(size, 1), p[at].flatten(0, 1).split(size, 1)
            for block, d_rows, p_rows in zip(*pieces, strict=True):
                torch.mm(flat_a, block.t(), out=p_rows)
                flat_q.addmm_(d_rows, block)
        ctx.save_for_backward(p, q)
        return (p * d).flatten(1).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None, None]:
        p, q = ctx.saved_tensors
        s = slope.view(-1, 1, 1)
        return s * q, s * p, None, None


class _Entries(torch.autograd.Function):
    """``Σ_e f(G_e, other_e, …)``: candidate by candidate and block by block, with f's slope taken on the block."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, d: Tensor, slopes: Callable[..., Slopes], sharing: Sharing, *others: Tensor
    ) -> Tensor:
        value = a.new_zeros(len(a))
        p, q = torch.empty_like(d, memory_format=torch.contiguous_format), torch.zeros_like(a).contiguous()
        size = _block_rows(a.shape[2])
        room = a.new_empty(min(size, d.shape[2]), a.shape[2])  # one block's memory, used again for the next
        outer = torch.mul if a.shape[1] == 1 else torch.mm
        factor = 1.0
        for row, at in sharing.segments():
            blocks = [other[row].split(size) for other in others]
            for n in range(at.start, at.stop):
                pieces = d[n].split(size, 1), p[n].split(size, 1), *blocks
                for d_rows, p_rows, *rest in zip(*pieces, strict=True):
                    block = outer(d_rows.t(), a[n], out=room[: d_rows.shape[1]])
                    total, u, factor = slopes(block, *rest)
                    value[n] += total
                    torch.mm(a[n], u.t(), out=p_rows)
                    q[n].addmm_(d_rows, u)
                    del u  # before the next block asks for memory: it then gets this, which is in the cache
        ctx.save_for_backward(p.mul_(factor), q.mul_(factor))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        p, q = ctx.saved_tensors
        s = slope.view(-1, 1, 1)
        return (s * q, s * p, *[None] * (len(ctx.needs_input_grad) - 2))


# torch does not annotate apply
formed: Callable[[Tensor, Tensor], Tensor] = _Formed.apply
_dot: Callable[..., Tensor] = _Dot.apply
_entries: Callable[..., Tensor] = _Entries.apply


def _block_rows(width: int) -> int:
    return max(1, BLOCK // max(width, 1))


def _slopes_of(fn: Entrywise) -> Callable[..., Slopes]:
    """What f knows of its slope, or else autograd's on the block."""
    if isinstance(fn, Sloped):
        return fn.both

    def by_autograd(block: Tensor, *others: Tensor) -> Slopes:
        with torch.enable_grad():
            block = block.detach().requires_grad_()
            value = fn(block, *others).sum()
            (u,) = torch.autograd.grad(value, block)
        return value.detach(), u, 1.0

    return by_autograd


__all__ = ["Factored", "formed"]
