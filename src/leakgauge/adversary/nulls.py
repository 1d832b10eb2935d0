"""Nulls: the adversary without information, with the same grants.

What an attack scores means nothing until it is compared with what the same attack scores when there is nothing to
find: noise in place of the update. Another record's update needs other records: the audit has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.observation import Observation, Round
from leakgauge.seeds import seed_of


def noise(observations: Sequence[Observation], *, seed: int = 0) -> list[Observation]:
    """Every tensor replaced by Gaussian noise of its own norm; zeros stay, for a pruned update shows them."""

    def blurred(clear: Round, key: int) -> Round:
        generator = torch.Generator().manual_seed(key)

        def like(value: Tensor) -> Tensor:
            drawn = torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device)
            drawn = torch.where(value == 0, torch.zeros_like(drawn), drawn)
            blurred_value: Tensor = drawn * (value.norm() / drawn.norm().clamp(min=torch.finfo(value.dtype).tiny))
            return blurred_value

        return replace(clear, observed={name: like(value) for name, value in clear.observed.items()})

    return [
        replace(one, rounds=tuple(blurred(clear, seed_of(seed, i, r)) for r, clear in enumerate(one.rounds)))
        for i, one in enumerate(observations)
    ]
