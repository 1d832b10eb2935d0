"""How far the features of two rows are apart: numbers in their spread, categories right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from leakgauge import meaning
from leakgauge.errors import DomainError
from leakgauge.metrics.images import refuse_others
from leakgauge.types import Feature


def plain(columns: int) -> tuple[Feature, ...]:
    """Numbers of spread 1: a table of which nothing is known."""
    return tuple(Feature(f"column {i}") for i in range(columns))


def starts(features: Sequence[Feature]) -> list[int]:
    """The first column of each feature."""
    return list(accumulate((feature.width for feature in features), initial=0))[:-1]


def feature_errors(reconstruction: Tensor, original: Tensor, features: Sequence[Feature] = ()) -> Tensor:
    """The error of each feature of rows ``[…, columns]``, ``[…, features]``: ``|x̂ − x| / spread`` for a number; for a
    category 0 if its largest entry is the right one, else infinite.

    A non-finite number is infinitely wrong; so is a category with a non-finite entry or without one largest entry. A
    feature that never varies has error 0. The rows broadcast.
    """
    refuse_others("feature_errors", reconstruction, original)
    x, y = reconstruction.detach().double(), original.detach().double()
    features = tuple(features) or plain(y.shape[-1])
    _fits(x, y, features)
    shape = torch.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    errors = torch.zeros(*shape, len(features), dtype=torch.float64, device=y.device)
    first = starts(features)
    numbers = [i for i, feature in enumerate(features) if not feature.categories and feature.varies]
    columns = [first[i] for i in numbers]
    spread = torch.tensor([features[i].spread for i in numbers], dtype=torch.float64, device=y.device)
    gaps = (x[..., columns] - y[..., columns]).abs() / spread
    errors[..., numbers] = gaps.nan_to_num(nan=torch.inf, posinf=torch.inf)
    for i, feature in enumerate(features):
        if feature.categories and feature.varies:
            block = slice(first[i], first[i] + feature.width)
            chosen, right = _category(x[..., block]), _category(y[..., block])
            errors[..., i] = torch.where((chosen == right) & (chosen >= 0), 0.0, torch.inf)
    return errors


def varying(features: Sequence[Feature]) -> list[int]:
    """The positions of the features that count; an error if there are none."""
    positions = [i for i, feature in enumerate(features) if feature.varies]
    if not positions:
        raise DomainError("no feature of the table varies", where="table", remedy="give records that differ")
    return positions


def weighted(rows: Tensor, features: Sequence[Feature]) -> Tensor:
    """Rows scaled so that their squared distance is the row error times the number of features that vary."""
    weights = [
        (0.0 if not feature.varies else 0.5**0.5 if feature.categories else 1 / feature.spread)
        for feature in features
        for _ in range(feature.width)
    ]
    scale = torch.tensor(weights, dtype=torch.float64, device=rows.device)
    return torch.where(scale > 0, rows.detach().double() * scale, 0.0)


def readable(row: Tensor, features: Sequence[Feature] = ()) -> tuple[str, ...]:
    """One row ``[columns]`` as people read it: numbers in the unit of their source, categories by name."""
    features = tuple(features) or plain(len(row))
    values = row.detach().double()
    return tuple(
        meaning.readable(values[a : a + f.width].tolist(), f.categories, offset=f.offset, unit=f.unit)
        for a, f in zip(starts(features), features, strict=True)
    )


def _category(block: Tensor) -> Tensor:
    """The position of the largest entry, ``[…, K] → […]``; −1 without one."""
    if block.shape[-1] == 1:
        return torch.zeros(block.shape[:-1], dtype=torch.long, device=block.device)
    largest, position = block.topk(2, -1)
    clear = block.isfinite().all(-1) & (largest[..., 0] > largest[..., 1])
    return position[..., 0].where(clear, -1)


def _fits(x: Tensor, y: Tensor, features: Sequence[Feature]) -> None:
    columns = sum(feature.width for feature in features)
    if x.shape[-1:] != (columns,) or y.shape[-1:] != (columns,):
        raise DomainError(
            f"rows of {list(x.shape[-1:])} and {list(y.shape[-1:])} columns for features of {columns}",
            where="table",
            remedy="give rows as [n, columns]",
        )
