"""What L-BFGS remembers: the last differences of points and gradients, and the inverse Hessian that they imply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.adversary.solver.rows import Rows


@dataclass(frozen=True)
class Curvature(Rows):
    """The last H pairs of differences of N problems, in rings.

    ``points`` and ``gradients`` are ``[N, H, D]``; ``newest`` is the slot of the last pair, ``[N]``. Of the products
    ``[N, H, H]``, ``mixed`` holds ``⟨point_i, gradient_j⟩`` for i not newer than j, and zero for the others;
    ``squares`` holds ``⟨gradient_i, gradient_j⟩``. An empty slot has zeros, and a unit on the diagonal of ``mixed``,
    which leaves the triangular solves as they are. Its tensors are written in place.
    """

    points: Tensor
    gradients: Tensor
    mixed: Tensor
    squares: Tensor
    newest: Tensor

    @classmethod
    def empty(cls, point: Tensor, slots: int) -> Curvature:
        n, d = point.shape
        return cls(
            point.new_zeros(n, slots, d),
            point.new_zeros(n, slots, d),
            torch.eye(slots, dtype=point.dtype, device=point.device).repeat(n, 1, 1),
            point.new_zeros(n, slots, slots),
            torch.full((n,), slots - 1, dtype=torch.long, device=point.device),
        )

    def push(self, rows: Tensor, point: Tensor, gradient: Tensor) -> None:
        """Put a pair of differences in the place of the oldest one, and its products with the others."""
        slot = (self.newest[rows] + 1) % self.mixed.shape[1]
        self.newest[rows] = slot
        self.points[rows, slot], self.gradients[rows, slot] = point, gradient
        every = gradient.new_zeros(len(self.points), gradient.shape[1])  # cheaper than the pairs of some problems
        every[rows] = gradient
        with_points, with_gradients = (_products(pairs, every)[rows] for pairs in (self.points, self.gradients))
        self.mixed[rows, slot] = 0.0
        self.mixed[rows, :, slot] = with_points
        self.squares[rows, slot] = with_gradients
        self.squares[rows, :, slot] = with_gradients

    def clear(self, rows: Tensor) -> None:
        """Forget everything about these problems."""
        for pairs in (self.points, self.gradients, self.squares):
            pairs[rows] = 0.0
        self.mixed[rows] = torch.eye(self.mixed.shape[1], dtype=self.mixed.dtype, device=rows.device)

    def solve(self, gradient: Tensor) -> Tensor:
        """``H g``: the two-loop recursion, solved as two triangular systems.

        With the pairs from old to new, ``R_ij = ⟨s_i, y_j⟩`` for i ≤ j and D its diagonal: ``R α = S g``,
        ``Rᵀ c = D α − γ Y(g − Yᵀα)`` and ``H g = γ (g − Yᵀ α) + Sᵀ c``. Only the products are put in that order.

        References:
            Byrd, Nocedal and Schnabel, Representations of Quasi-Newton Matrices, 1994.
        """
        n, slots, _ = self.mixed.shape
        order = (self.newest.unsqueeze(1) + 1 + torch.arange(slots, device=gradient.device)) % slots
        rows = torch.arange(n, device=gradient.device).unsqueeze(1)
        cells = rows.unsqueeze(2), order.unsqueeze(2), order.unsqueeze(1)
        r, squares = self.mixed[cells], self.squares[cells]
        square = squares[:, -1, -1]
        tiny = torch.finfo(gradient.dtype).tiny
        gamma = torch.where(square > 0, r[:, -1, -1] / square.clamp(min=tiny), 1.0).unsqueeze(1)
        products = (_products(pairs, gradient)[rows, order].unsqueeze(2) for pairs in (self.points, self.gradients))
        with_points, with_gradients = products
        alpha = torch.linalg.solve_triangular(r, with_points, upper=True)
        rest = with_gradients - squares @ alpha
        diagonal = r.diagonal(dim1=1, dim2=2).unsqueeze(2)
        right = diagonal * alpha - gamma.unsqueeze(2) * rest
        c = torch.linalg.solve_triangular(r.transpose(1, 2), right, upper=False)
        alpha, c = (torch.empty_like(v).index_put_((rows, order), v) for v in (alpha, c))  # back to their slots
        return gamma * (gradient - _combined(self.gradients, alpha)) + _combined(self.points, c)


def _products(pairs: Tensor, vector: Tensor) -> Tensor:
    """``⟨pair_i, v⟩``, ``[N, H]``: a row times a matrix, many times faster in a batch than a matrix times a column."""
    return (vector.unsqueeze(1) @ pairs.transpose(1, 2)).squeeze(1)


def _combined(pairs: Tensor, weights: Tensor) -> Tensor:
    """``Σ_i w_i pair_i``, ``[N, D]``, for weights ``[N, H, 1]``."""
    return (weights.transpose(1, 2) @ pairs).squeeze(1)
