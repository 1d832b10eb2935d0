"""Where a hidden learning rate begins: the update of the start is then as long as the one that was observed."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.defenses import Chain
from leakgauge.updates import Stack

SMALL_RATE = 1e-3
"""A rate at which local steps are still nearly one gradient step: the length of their change is proportional to it."""


def lengths(observed: Stack, chain: Chain) -> Tensor:
    """``√(‖o‖² − E‖noise‖²)`` of every observation, ``[M]``: at least a deviation of that difference."""
    squares = torch.stack(list(observed.squares.values())).sum(0)
    entries = sum(value[0].numel() for value in observed.values())
    variance = sum(law.variance for part in chain.parts if (law := part.noise_law) is not None)
    least = max(variance * (2 * entries) ** 0.5, torch.finfo(squares.dtype).tiny)
    return (squares - entries * variance).clamp(min=least).sqrt()
