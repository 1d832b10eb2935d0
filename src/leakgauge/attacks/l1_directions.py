"""Sparse directions of larger batches: the least l1 norm instead of lucky samples.

Sampling needs about ``2^(b − 1)`` tries. ``min ‖L q‖₁`` over unit q has its local minima at sparse columns: from the
sum of two random rows of L, iteratively reweighted least squares goes down to one, and rounding (the smallest
eigenvector of the rows that are nearly zero) makes it exact. This is the view of SPEAR++ (sparse dictionary learning)
with a solver of our own, of the family of ER-SpUD.

References:
    Bakarsky et al., SPEAR++: Scaling Gradient Inversion via Sparsely-Used Dictionary Learning, 2025.
    https://arxiv.org/abs/2510.24200
    Spielman, Wang and Wright, Exact Recovery of Sparsely-Used Dictionaries, 2012. https://arxiv.org/abs/1206.5882
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from leakgauge.attacks.sparse_directions import Columns

AT_ONCE = 32
STEPS, COOLING, FIRST, LAST = 60, 0.8, 0.1, 1e-6
NEARLY_ZERO, ROUNDINGS = 0.3, 3
"""The share of rows that a direction is fitted to, and how often."""


def l1_searched(columns: Columns, generator: Generator, *, starts: int) -> Iterator[Tensor]:
    """Directions from ``starts`` starts."""
    rows = columns.rows
    for _ in range(0, starts, AT_ONCE):
        pairs = torch.randint(len(rows), (AT_ONCE, 2), generator=generator).to(rows.device)
        yield _rounded(rows, _reweighted(rows, _unit(rows[pairs].sum(1))))


def _reweighted(rows: Tensor, directions: Tensor) -> Tensor:
    """``q ← H(q)⁻¹ q`` with ``H = Lᵀ diag(1 / √((L q)² + ε²)) L``, ε falling."""
    smoothing = FIRST
    for _ in range(STEPS):
        weights = ((directions @ rows.T).square() + smoothing**2).rsqrt()
        directions = _unit(torch.linalg.solve(_scatter(rows, weights), directions))
        smoothing = max(LAST, smoothing * COOLING)
    return directions


def _rounded(rows: Tensor, directions: Tensor) -> Tensor:
    """The direction that the rows nearest to zero are most orthogonal to."""
    count = max(rows.shape[1], int(NEARLY_ZERO * len(rows)))
    for _ in range(ROUNDINGS):
        nearest = (directions @ rows.T).abs().topk(count, largest=False).indices
        weights = rows.new_zeros(len(directions), len(rows)).scatter_(1, nearest, 1.0)
        directions = torch.linalg.eigh(_scatter(rows, weights)).eigenvectors[:, :, 0]
    return directions


def _scatter(rows: Tensor, weights: Tensor) -> Tensor:
    """``Lᵀ diag(w) L`` for each row of weights, ``[k, b, b]``."""
    return (weights.unsqueeze(-1) * rows).mT @ rows


def _unit(directions: Tensor) -> Tensor:
    unit: Tensor = directions / directions.norm(dim=1, keepdim=True)
    return unit
