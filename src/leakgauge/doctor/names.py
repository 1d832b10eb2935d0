"""Which tensor of the file "after" is which parameter of the model."""

from __future__ import annotations

from itertools import combinations

import torch
from scipy.optimize import linear_sum_assignment

from leakgauge.doctor.replay import Replayer


def nearest_names(replayer: Replayer) -> tuple[tuple[str, str], ...]:
    """Which tensor of "after" is nearest to which of "before", among equal shapes; () if each is its own."""
    evidence, pairs = replayer.evidence, []
    for group in _equal_shapes(replayer):
        cost = torch.stack(
            [
                torch.stack([(evidence.after[b].double() - evidence.before[a].double()).norm() for b in group])
                for a in group
            ]
        )
        rows, columns = linear_sum_assignment(cost.numpy())
        pairs += [(group[i], group[j]) for i, j in zip(rows, columns, strict=True) if i != j]
    return tuple(pairs)


def equal_pairs(replayer: Replayer) -> list[tuple[str, str]]:
    """Pairs of parameters that may stand under each other's name."""
    return [pair for group in _equal_shapes(replayer) for pair in combinations(group, 2)]


def _equal_shapes(replayer: Replayer) -> list[list[str]]:
    """Parameters of equal shapes."""
    by: dict[torch.Size, list[str]] = {}
    for name in replayer.names:
        by.setdefault(replayer.evidence.before[name].shape, []).append(name)
    return [group for group in by.values() if len(group) > 1]
