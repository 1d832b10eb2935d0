"""MixUp with hidden indices: which records are in which encoding, and how much of each.

``E = Λ X`` with rows of Λ that hold k coefficients and sum to one. All records enter alike, so that the columns of Λ
are uncorrelated and of one size: whitened encodings are Λ but for a rotation. A column is mostly zero, hence skewed,
and the rotation with the largest third moments finds them all (independent component analysis). Supports and
coefficients then alternate. Nothing is granted but k and the number of records.

References:
    Hyvärinen and Oja, Independent Component Analysis: Algorithms and Applications, 2000.
    https://doi.org/10.1016/S0893-6080(00)00026-5; the problem: Carlini et al., Is Private Learning Possible with
    Instance Encoding?, 2021. https://arxiv.org/abs/2011.05315
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def matrix(indices: Tensor, weights: Tensor, records: int) -> Tensor:
    """Λ in float64, ``[encodings, records]``; public images (negative indices) are not in it."""
    own = indices >= 0
    zeros = torch.zeros(len(indices), records, dtype=torch.float64)
    return zeros.scatter_add(1, indices.clamp(min=0), weights.double() * own)


@dataclass(frozen=True)
class Mixture:
    """A guess at Λ: ``indices`` and ``weights [M, k]``, and ``residual = min_X ‖Λ X − E‖``."""

    indices: Tensor
    weights: Tensor
    residual: float


def coordinates(encodings: Tensor, records: int) -> Tensor:
    """The encodings ``[M, r]`` in their own subspace, which has at most as many dimensions as there are records."""
    u, singular, _ = torch.linalg.svd(encodings.double().flatten(1), full_matrices=False)
    points: Tensor = u[:, :records] * singular[:records]
    return points


def unmixed(encodings: Tensor, records: int, k: int, *, steps: int = 50, seed: int = 0) -> Mixture:
    """Indices and coefficients of every encoding, both hidden; the least residual of what was tried."""
    points = coordinates(encodings, records)
    columns = _rotated(points, records, seed=seed)
    indices = columns.topk(k, 1).indices
    weights = on_simplex(_images(points, indices, _shares(columns, indices), records)[indices], points)
    for _ in range(steps):
        images = _images(points, indices, weights, records)
        # if the images are right, so is Λ = E X⁺; of each row the k largest stay
        indices = (points @ torch.linalg.pinv(images)).topk(k, 1).indices
        weights = on_simplex(images[indices], points)
    return min(
        (_mixture_of(points, indices, weights, records), exact(points, indices, records)), key=lambda m: m.residual
    )


def exact(points: Tensor, indices: Tensor, records: int, *, steps: int = 20) -> Mixture:
    """Λ in closed form from its support: ``E b`` is a column of it if it vanishes wherever that record is absent.

    b is the last right singular vector of those rows, its length follows from rows that sum to one. For encodings
    without errors it is exact; a support that it contradicts is changed, at most ``steps`` times (0: it is known).
    """
    u = torch.linalg.svd(points, full_matrices=False).U
    k, columns = indices.shape[1], torch.zeros(len(points), records, dtype=points.dtype)
    for step in range(steps + 1):
        absent = torch.ones(len(points), records, dtype=points.dtype).scatter(1, indices, 0.0)
        grams = torch.einsum("mj,ma,mb->jab", absent, u, u)
        raw = u @ torch.linalg.eigh(grams).eigenvectors[:, :, 0].T
        ones = torch.ones(len(points), 1, dtype=points.dtype)
        columns = raw * torch.linalg.lstsq(raw, ones, driver="gelsd").solution.T
        largest = columns.topk(k, 1).indices
        if step == steps or torch.equal(largest.sort(1).values, indices.sort(1).values):
            break
        indices = largest
    return _mixture_of(points, indices, _shares(columns, indices), records)


def fitted(points: Tensor, indices: Tensor, weights: Tensor, records: int, *, steps: int) -> Mixture:
    """Coefficients of known supports: X given Λ (least squares) and each row of Λ given X (k numbers) in turn."""
    for _ in range(steps):
        weights = on_simplex(_images(points, indices, weights, records)[indices], points)
    return _mixture_of(points, indices, weights, records)


def aligned(mixture: Mixture, owners: Tensor, records: int) -> Mixture:
    """The same with records renamed, so that those of observation i have its places.

    Encoding m belongs to observation ``owners[m]``, whose records it holds in every round: each observation gets the
    records that weigh most in its encodings, one to one.
    """
    weigh = matrix(mixture.indices, mixture.weights, records)
    each = records // (int(owners.max()) + 1)
    total = torch.zeros(records // each, records, dtype=weigh.dtype).index_add(0, owners, weigh)
    places, columns = linear_sum_assignment(-total.repeat_interleave(each, 0).numpy())
    renamed = torch.empty(records, dtype=torch.long)
    renamed[torch.as_tensor(columns)] = torch.as_tensor(places)
    return Mixture(renamed[mixture.indices], mixture.weights, mixture.residual)


def _rotated(points: Tensor, records: int, *, seed: int, steps: int = 300) -> Tensor:
    """Whitened encodings under the rotation with the largest third moments, ``[M, records]``: Λ but for its scale."""
    centred = points - points.mean(0)
    u, singular, _ = torch.linalg.svd(centred, full_matrices=False)
    # rows that sum to one leave one dimension less than records; the constant stands for it
    rank = (singular > 1e-10 * singular[0]).sum().clamp(max=records - 1)
    white = torch.cat([u[:, :rank] * len(u) ** 0.5, torch.ones(len(u), 1, dtype=u.dtype)], 1)
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(records, white.shape[1], generator=generator, dtype=u.dtype).T).Q
    for _ in range(steps):
        left, _, right = torch.linalg.svd(white.T @ (white @ turn).square(), full_matrices=False)
        before, turn = turn, left @ right
        if float((turn - before).norm()) < 1e-9:
            break
    rotated: Tensor = white @ turn
    return rotated


def _images(points: Tensor, indices: Tensor, weights: Tensor, records: int) -> Tensor:
    images: Tensor = torch.linalg.lstsq(matrix(indices, weights, records), points, driver="gelsd").solution
    return images


def _shares(columns: Tensor, indices: Tensor) -> Tensor:
    """Positive and summing to one."""
    weights = columns.gather(1, indices).clamp(min=0)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-12)


def _mixture_of(points: Tensor, indices: Tensor, weights: Tensor, records: int) -> Mixture:
    left = matrix(indices, weights, records) @ _images(points, indices, weights, records) - points
    return Mixture(indices, weights, float(left.norm()))


def on_simplex(images: Tensor, points: Tensor) -> Tensor:
    """``argmin_λ ‖Σ_j λ_j x_j − e‖²`` with ``Σ λ = 1`` for every encoding, by its normal equations; then λ ≥ 0."""
    k = images.shape[1]
    normal = torch.zeros(len(images), k + 1, k + 1, dtype=torch.float64)
    normal[:, :k, :k] = images @ images.transpose(1, 2) + 1e-9 * torch.eye(k, dtype=torch.float64)
    normal[:, k, :k] = normal[:, :k, k] = 1
    one = torch.ones(len(images), 1, dtype=torch.float64)
    right = torch.cat([(images @ points.unsqueeze(2)).squeeze(2), one], 1)
    weights: Tensor = torch.linalg.solve(normal, right)[:, :k].clamp(min=0)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-12)
