"""Sparse directions: the examples of a batch as the sparse vectors in the column space of a gradient.

``∂W = Δᵀ X`` has rank b, so ``∂W = L R`` with an orthonormal L ``[m, b]``, and there is one invertible Q with
``Δᵀ = L Q``, ``X = Q⁻¹ R``. ReLU makes columns of Δᵀ sparse: if b − 1 random rows happen to be zero in column i, the
kernel of those rows of L is ``q_i``. Directions with more zeros than chance gives are collected, the sparsest
independent ones assembled, scaled by the bias gradient (``L Q 1 = ∂c``), and judged by whether the inputs they imply
activate exactly the units that they say. Works on centred data, where every unit has many examples and peeling finds
none.

References:
    Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, 2024.
    https://arxiv.org/abs/2403.03945
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from leakgauge.attacks.certificates import Certified, Certifier, Claims
from leakgauge.attacks.linear_layers import LayerGradient, Tail

MARGIN = 4
"""A direction is sparse with so many zeros more than the b − 1 that any b − 1 rows give."""
LAYERS, NEW = 6, 256
"""Bases of directions that are remembered, and new directions that are looked at in a batch."""
INDEPENDENT = 1e-3
"""The least distance of a direction from the span of sparser ones."""
AT_ONCE, SWAPS_AT_ONCE = 4096, 256

Search = Callable[["Columns", Generator], Iterator[Tensor]]
"""Batches of directions ``[k, b]`` to be tested, as many as it is worth."""


@dataclass(frozen=True)
class Columns:
    """The column space of what is left of a gradient: ``left`` L ``[m, b]``, ``right`` R ``[b, n]``, ``alive`` the rows
    that some example activates, ``zero`` the largest cosine of a row and a direction that counts as none."""

    left: Tensor
    right: Tensor
    alive: Tensor
    zero: float

    @classmethod
    def of(cls, gradient: LayerGradient) -> Columns:
        left, values, right = gradient.factors
        alive = (left.norm(dim=1) > 1e-3 * gradient.precision.loose) & gradient.live
        return cls(left, values.unsqueeze(1) * right, alive, 10 * gradient.precision.tolerance)

    @property
    def count(self) -> int:
        return self.left.shape[1]

    @cached_property
    def rows(self) -> Tensor:
        """The rows of L that are alive, of unit length, ``[a, b]``."""
        rows = self.left[self.alive]
        unit: Tensor = rows / rows.norm(dim=1, keepdim=True)
        return unit

    @property
    def least(self) -> int:
        """Zeros of a sparse direction: more than b − 1 rows and chance give any direction."""
        return self.count + MARGIN + int(3 * len(self.rows) * self.zero * self.count**0.5)

    def zeros(self, directions: Tensor) -> Tensor:
        """How many live rows each direction ``[k, b]`` is orthogonal to, ``[k]``."""
        return ((directions @ self.rows.T).abs() < self.zero).sum(1)

    def refined(self, directions: Tensor) -> Tensor:
        """Each direction fitted to all rows that it is nearly orthogonal to."""
        near = ((directions @ self.rows.T).abs() < self.zero).to(directions)
        scatter = (near.unsqueeze(-1) * self.rows).mT @ self.rows
        fitted: Tensor = torch.linalg.eigh(scatter).eigenvectors[:, :, 0]
        return fitted


def sampled(columns: Columns, generator: Generator, *, samples: int) -> Iterator[Tensor]:
    """Kernels of b − 1 random rows: one is a true direction with probability ``sparsity^(b − 1)``."""
    rows, b = columns.rows.cpu(), columns.count
    size = min(AT_ONCE, 64 * 2 ** min(b, 10))
    for _ in range(0, samples, size):
        chosen = rows[torch.randint(len(rows), (size, b - 1), generator=generator)]
        solution, singular = torch.linalg.solve_ex(chosen[:, :, :-1], -chosen[:, :, -1:])
        kernel = torch.cat([solution.squeeze(-1), rows.new_ones(size, 1)], 1)
        kernel = kernel[(singular == 0) & kernel.isfinite().all(1)]
        yield (kernel / kernel.norm(dim=1, keepdim=True)).to(columns.rows)


@dataclass(frozen=True)
class Pool:
    """Distinct sparse directions ``[k, b]`` with their zeros ``[k]``, the sparsest first."""

    columns: Columns
    directions: Tensor
    zeros: Tensor

    @classmethod
    def empty(cls, columns: Columns) -> Pool:
        return cls(columns, columns.rows.new_zeros(0, columns.count), columns.alive.new_zeros(0, dtype=torch.long))

    def with_new(self, directions: Tensor) -> Pool:
        """The pool with what is sparse and new among these; itself where nothing is."""
        directions = _distinct(directions[self.columns.zeros(directions) >= self.columns.least], self.columns.zero)
        sparsest = self.columns.zeros(directions).topk(min(len(directions), NEW)).indices
        directions = directions[sparsest]
        if not len(directions):
            return self
        directions = torch.cat([self.directions, self.columns.refined(directions)])
        zeros = self.columns.zeros(directions)
        order = zeros.argsort(descending=True, stable=True)
        directions, zeros = directions[order], zeros[order]
        repeated = ((directions @ directions.T).abs() > 1 - self._near).tril(-1).any(1)
        distinct = (~repeated & (zeros >= self.columns.least)).nonzero().flatten()
        remembered = distinct[_layered(directions[distinct])]
        same = len(remembered) == len(self.zeros) and torch.equal(zeros[remembered], self.zeros)
        return self if same else Pool(self.columns, directions[remembered], zeros[remembered])

    @property
    def _near(self) -> float:
        """Directions whose cosine differs from 1 by less are the same."""
        return max((10 * self.columns.zero) ** 2, 1e-12)

    def independent(self) -> tuple[Tensor, Tensor] | None:
        """The sparsest b independent directions ``[b, b]`` and the others ``[k, b]``; None where there are too few."""
        chosen = _basis(self.directions)
        if len(chosen) < self.columns.count:
            return None
        others = torch.ones(len(self.directions), dtype=torch.bool, device=chosen.device)
        others[chosen] = False
        return self.directions[chosen], self.directions[others]


@dataclass(frozen=True)
class Assembly:
    """How directions ``[b, b]`` become examples, and how well they match the units that these activate."""

    columns: Columns
    tail: Tail
    bias: Tensor

    def examples(self, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs ``[b, n]`` and derivatives ``[b, m]``, scaled so that derivatives sum to the bias gradient."""
        scaled = self._scaled(directions)
        return torch.linalg.solve_ex(scaled.mT, self.columns.right)[0], scaled @ self.columns.left.T

    def _scaled(self, directions: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.solve_ex(directions.mT, self.columns.left.T @ self.bias)[0]
        return directions * lengths.unsqueeze(-1)

    def match(self, directions: Tensor) -> Tensor:
        """The share of examples and units for which ``z > 0`` and ``δ ≠ 0`` agree, of ``[…, b, b]``; 1 if exact."""
        before = torch.linalg.solve_ex(self._scaled(directions).mT, self._right_before)[0]
        off = (directions @ self.columns.rows.T).abs() < self.columns.zero
        agree: Tensor = (before + self.tail.bias[self.columns.alive] > 0) != off
        return agree.double().mean((-2, -1))

    @cached_property
    def _right_before(self) -> Tensor:
        return self.columns.right @ self.tail.weight[self.columns.alive].T

    def improved(self, directions: Tensor, others: Tensor) -> Tensor:
        """Swap single directions for others as long as the match gets better."""
        best = float(self.match(directions))
        for _ in range(len(directions)):
            if best == 1 or not len(others):
                break
            swaps = torch.stack([_swapped(directions, i, others) for i in range(len(directions))]).flatten(0, 1)
            matches = torch.cat([self.match(some) for some in swaps.split(SWAPS_AT_ONCE)]).nan_to_num(0.0)
            if float(matches.max()) <= best:
                break
            best, directions = float(matches.max()), swaps[int(matches.argmax())]
        return directions


def _basis(directions: Tensor) -> Tensor:
    """The places of directions ``[k, b]`` that are independent of all before them, at most b, in order."""
    left, chosen = directions.clone(), list[int]()
    for _ in range(directions.shape[1]):
        far = (left.norm(dim=1) > INDEPENDENT).nonzero()
        if not len(far):
            break
        chosen.append(int(far[0]))
        axis = left[chosen[-1]] / left[chosen[-1]].norm()
        left = left - (left @ axis).unsqueeze(1) * axis
        left = left - (left @ axis).unsqueeze(1) * axis  # once more: rounding leaves a little
    return torch.tensor(chosen, dtype=torch.long, device=directions.device)


def _layered(directions: Tensor) -> Tensor:
    """The places, in order, of a basis, of a basis of the others, and so on: what is remembered spans all it can.

    Sums of a few columns vanish where all of these do, often more often than one dense column does where records are
    alike. Ordered by zeros alone they would crowd it out; they cannot span it.
    """
    places, layers = torch.arange(len(directions), device=directions.device), list[Tensor]()
    for _ in range(LAYERS):
        chosen = _basis(directions[places])
        layers.append(places[chosen])
        rest = torch.ones_like(places, dtype=torch.bool)
        rest[chosen] = False
        places = places[rest]
    return torch.cat(layers).sort().values


def _distinct(directions: Tensor, tolerance: float) -> Tensor:
    """One of each group of directions that agree, but for their sign, in a fixed random coordinate."""
    generator = torch.Generator().manual_seed(1)
    coordinate = torch.randn(directions.shape[1], generator=generator, dtype=torch.float64).to(directions)
    values, order = (directions @ coordinate).abs().sort()
    new = torch.ones_like(values, dtype=torch.bool)
    new[1:] = values.diff() > 10 * tolerance
    return directions[order[new]]


def _swapped(directions: Tensor, place: int, others: Tensor) -> Tensor:
    swapped = directions.expand(len(others), *directions.shape).clone()
    swapped[:, place] = others
    return swapped


def by_sparse_directions(
    gradient: LayerGradient, certifier: Certifier, searches: Sequence[Search], *, seed: int = 0
) -> Certified:
    """All examples that are left in a gradient, or none: one wrong direction would spoil every input."""
    columns = Columns.of(gradient)
    if not columns.count or len(columns.rows) <= columns.count:
        return certifier.none()
    generator = torch.Generator().manual_seed(seed)
    assembly, pool = Assembly(columns, certifier.tail, gradient.bias), Pool.empty(columns)
    tried, batches = None, 0
    for search in searches:
        for directions in search(columns, generator):
            pool, batches = pool.with_new(directions), batches + 1
            chosen = pool.independent()
            swap = batches & (batches - 1) == 0  # now and then: swaps cost more than a batch of directions
            if chosen is None or (not swap and tried is not None and torch.equal(chosen[0], tried)):
                continue
            tried = chosen[0]
            directions = assembly.improved(*chosen) if swap else tried
            certified = certifier(_claims(gradient, *assembly.examples(directions)))
            if len(certified) == columns.count:
                return certified
    return certifier.none()


def _claims(gradient: LayerGradient, inputs: Tensor, deltas: Tensor) -> Claims:
    """Each example claims its derivative at every unit, relative to its largest."""
    sizes = deltas.abs().amax(1, keepdim=True).expand_as(deltas)
    allowance = gradient.precision.rounding(gradient.worn).expand_as(deltas)
    return Claims(inputs, deltas, torch.ones_like(deltas, dtype=torch.bool), sizes, allowance)


__all__ = ["Columns", "Search", "by_sparse_directions", "sampled"]
