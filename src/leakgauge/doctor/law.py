"""Does an update follow the law of a defense? A test against simulated releases, for any part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import stats
from torch import Tensor

DRAWS = 128
"""Simulated releases: the first half describes the law, the second says how far chance alone departs from it."""
LEVEL = 1e-3
"""A client that does what we believe is refused in one of a thousand."""
FEW = 10
"""Tensors with fewer entries that vary are looked at only together with the others."""


@dataclass(frozen=True, eq=False)
class ReleaseLaw:
    """What releases of one update under one defense look like, from ``draws`` of them, ``[draws, entries]``.

    Entries whose draws agree up to ``rounding`` are *fixed*, and an update must have them. On the others, residuals
    ``(o − mean) / spread`` must look like those of a new draw: as large (in all and in each tensor), as heavy-tailed,
    leaning neither along the update nor to one side; as many zeros, as long, and as near to the values that were drawn
    (a mask or a rounding allows but a few). Each statistic is compared with the draws of the second half by Student's
    prediction, at the level over their number: exact for normal statistics, which sums over entries nearly are.
    """

    draws: Tensor
    rounding: float
    tensors: Tensor

    @property
    def _model(self) -> Tensor:
        return self.draws[: len(self.draws) // 2]

    @property
    def fresh(self) -> Tensor:
        """Draws that the mean and the spread do not know, as the user's update."""
        return self.draws[len(self.draws) // 2 :]

    @cached_property
    def mean(self) -> Tensor:
        return self._model.mean(0)

    @cached_property
    def spread(self) -> Tensor:
        """The standard deviation of each entry, rounding included."""
        return (self._model.var(0) + self.rounding**2).sqrt()

    @cached_property
    def varying(self) -> Tensor:
        return self._model.std(0) > self.rounding

    def misfit(self, observed: Tensor, mean: Tensor | None = None) -> Tensor:
        """``Σ ((o − mean) / spread)²`` of rows ``[…, entries]``: twice the log likelihood lost, for Gaussian noise."""
        return ((observed - (self.mean if mean is None else mean)) / self.spread).square().sum(-1)

    def p(self, observed: Tensor) -> float:
        """The probability of an update that departs from the law by as much; 0 where a fixed entry is another."""
        if not self._fixed_agree(observed):
            return 0.0
        if not bool(self.varying.any()):
            return 1.0
        departures, floors = self._statistics(observed.unsqueeze(0))
        fresh, _ = self._statistics(self.fresh)
        count = len(fresh)
        spread = np.maximum(fresh.std(0, ddof=1) * np.sqrt(1 + 1 / count), floors)
        t = np.abs(departures[0] - fresh.mean(0)) / spread
        return float(min(1.0, len(t) * 2 * stats.t.sf(t.max(), count - 1)))

    def _fixed_agree(self, observed: Tensor) -> bool:
        fixed = ~self.varying & ~self._counted_otherwise(observed)
        if not bool(fixed.any()):
            return True
        off, *fresh = ((row - self.mean)[fixed].norm() for row in (observed, *self.fresh))
        allowed = self.rounding * float(fixed.sum()) ** 0.5
        return bool(off <= max(allowed, 2 * float(max(fresh))))

    def _counted_otherwise(self, observed: Tensor) -> Tensor:
        """The least entry of each tensor that is zero here or there alone: people round a share as they like.

        One entry of a tensor, then, may be pruned by one client and not by another that does the same.
        """
        otherwise = ~self.varying & ((observed == 0) != (self.mean == 0))
        sizes = torch.where(otherwise, torch.maximum(observed.abs(), self.mean.abs()), torch.inf)
        excused = torch.zeros_like(otherwise)
        for tensor in self.tensors[otherwise].unique():
            inside = torch.where(self.tensors == tensor, sizes, torch.inf)
            excused[inside.argmin()] = True
        return excused

    def _statistics(self, rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The statistics of updates, ``[rows, statistics]``, and the least spread that counts for each."""
        varying, size = self.varying, float(self.varying.sum())
        e = ((rows - self.mean) / self.spread)[:, varying]
        along = (self.mean / self.spread)[varying]
        share, lean = 1 / size, 0.05
        columns = {
            "size": (_log(e.square().mean(1)), 0.01),
            "absolute": (e.abs().mean(1), 0.01),
            "above one": ((e.abs() > 1).double().mean(1), share),
            "above two": ((e.abs() > 2).double().mean(1), share),
            "positive": ((e > 0).double().mean(1), share),
            "along the update": (e @ along / along.norm().clamp(min=1e-300), lean),
            "zeros": ((rows == 0).double().mean(1), 1 / rows.shape[1]),
            "length": (_log(rows.square().sum(1)), 0.002),
            "nearest draw": (_log(self._nearest(rows[:, varying])), 0.05),
        }
        owner = self.tensors[varying]
        for tensor in owner.unique().tolist():
            inside = owner == tensor
            if int(inside.sum()) >= FEW:
                columns[f"size of tensor {tensor}"] = (_log(e[:, inside].square().mean(1)), 0.02)
        values = torch.stack([value for value, _ in columns.values()], 1).numpy()
        return values, np.array([floor for _, floor in columns.values()])

    def _nearest(self, rows: Tensor) -> Tensor:
        """The mean square distance of entries to the nearest value that was drawn, in spreads."""
        model, spread = self._model[:, self.varying], self.spread[self.varying]
        off = [((row - model) / spread).abs().amin(0).square().mean() for row in rows]
        return torch.stack(off) + 1e-4


def _log(values: Tensor) -> Tensor:
    return values.clamp(min=1e-300).log()
