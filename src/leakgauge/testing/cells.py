"""Cells that cut the line (or the plane) where a sample lies, and the mass that a density puts into each.

A cell is an interval between quantiles of a pilot sample, or an atom: a value that the pilot has more than once. Masses
are Gauss-Legendre sums over panels inside the cells, out to infinity on both sides, so that all cells together hold
everything the density has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """One axis: nodes and weights of the quadrature, the cell of each node, and the inner edges of the cells.

    The last cells are the ``atoms`` (weight 1: the "density" there is a probability).
    """

    nodes: Tensor
    weights: Tensor
    cells: Tensor
    edges: Tensor
    atoms: Tensor

    @property
    def size(self) -> int:
        return len(self.edges) + 1 + len(self.atoms)

    @classmethod
    def of(cls, pilot: Tensor, breaks: Sequence[float], known: Tensor, *, cells: int, panels: int) -> Axis:
        """The axis of a pilot sample ``[n]``; ``breaks`` are places where the density may have a kink or a jump.

        ``known`` are atoms that a pilot may have missed.
        """
        values, times = pilot.unique(return_counts=True)
        atoms = values[(times > 1) | (values == 0)]
        atoms = torch.cat([atoms, -atoms, known]).unique()  # one that the pilot missed, if there is its mirror image
        rest = pilot[~torch.isin(pilot, atoms)]
        if len(rest) < 2:
            rest = torch.tensor([-1.1037, 1.3091], dtype=torch.float64)  # everything is in atoms; say so with any cells
        levels = torch.linspace(0, 1, cells + 1, dtype=torch.float64)
        cuts = rest.quantile(levels)
        edges = cuts[1:-1].unique()
        ends = sorted({*cuts.tolist(), *breaks})
        spread = max(ends[-1] - ends[0], 1e-9)
        pieces = [_panel(low, high, panels) for low, high in pairwise(ends)]
        pieces += [_tail(ends[0], -spread), _tail(ends[-1], spread)]
        nodes, weights = (torch.cat([piece[i] for piece in pieces]) for i in (0, 1))
        nodes = torch.where(nodes == 0, torch.finfo(nodes.dtype).tiny, nodes)  # zero itself belongs to an atom
        where = torch.searchsorted(edges, nodes, right=True)
        nodes, weights = torch.cat([nodes, atoms]), torch.cat([weights, torch.ones_like(atoms)])
        where = torch.cat([where, len(edges) + 1 + torch.arange(len(atoms))])
        return cls(nodes, weights, where, edges, atoms)

    def place(self, values: Tensor) -> Tensor:
        """The cell of each value."""
        places = torch.searchsorted(self.edges, values.contiguous(), right=True)
        for i, atom in enumerate(self.atoms):
            places = torch.where(values == atom, len(self.edges) + 1 + i, places)
        return places


@dataclass(frozen=True)
class Cells:
    """The product of one or two axes."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, pilot: Tensor, breaks: Sequence[float], known: Tensor) -> Cells:
        """The cells of a pilot sample ``[n, d]``."""
        cells, panels = ((24, 4), (6, 5))[pilot.shape[1] - 1]
        return cls(tuple(Axis.of(column, breaks, known, cells=cells, panels=panels) for column in pilot.unbind(1)))

    @property
    def size(self) -> int:
        return int(np.prod([axis.size for axis in self.axes]))

    def counts(self, values: Tensor) -> Tensor:
        """How many of ``values [n, d]`` fell into each cell."""
        places = [axis.place(column) for axis, column in zip(self.axes, values.unbind(1), strict=True)]
        return torch.bincount(self._join(places), minlength=self.size)

    def masses(self, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        """The mass of each cell under a density of rows ``[G, d]``."""
        points = torch.cartesian_prod(*(axis.nodes for axis in self.axes)).reshape(-1, len(self.axes))
        weights = torch.cartesian_prod(*(axis.weights for axis in self.axes)).reshape(points.shape).prod(1)
        where = torch.cartesian_prod(*(axis.cells for axis in self.axes)).reshape(points.shape).unbind(1)
        with torch.no_grad():
            heights = log_density(points).exp()
        return torch.zeros(self.size, dtype=torch.float64).index_add(0, self._join(list(where)), heights * weights)

    def _join(self, places: list[Tensor]) -> Tensor:
        joined = places[0]
        for axis, place in zip(self.axes[1:], places[1:], strict=True):
            joined = joined * axis.size + place
        return joined


_ROOTS, _HALVES = (torch.from_numpy(array) for array in np.polynomial.legendre.leggauss(4))


def _panel(low: float, high: float, panels: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights between two numbers."""
    ends = torch.linspace(low, high, panels + 1, dtype=torch.float64)
    half = (ends[1:] - ends[:-1]) / 2
    nodes = (ends[:-1] + half).unsqueeze(1) + half.unsqueeze(1) * _ROOTS
    return nodes.flatten(), (half.unsqueeze(1) * _HALVES).flatten()


def _tail(start: float, spread: float, panels: int = 16) -> tuple[Tensor, Tensor]:
    """Nodes and weights from ``start`` to infinity, by ``x = start + spread · t / (1 − t)``."""
    t, weights = _panel(0.0, 1.0, panels)
    return start + spread * t / (1 - t), abs(spread) * weights / (1 - t).square()
