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

    def blurred(made: Round, key: int) -> Round:
        generator = torch.Generator().manual_seed(key)

        def like(value: Tensor) -> Tensor:
            drawn = torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device)
            drawn = torch.where(value == 0, torch.zeros_like(drawn), drawn)
            made: Tensor = drawn * (value.norm() / drawn.norm().clamp(min=torch.finfo(value.dtype).tiny))
            return made

        return replace(made, observed={name: like(value) for name, value in made.observed.items()})

    return [
        replace(seen, rounds=tuple(blurred(made, seed_of(seed, i, r)) for r, made in enumerate(seen.rounds)))
        for i, seen in enumerate(observations)
    ]
