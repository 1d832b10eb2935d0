"""The best restart of every observation under every setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.adversary.adversary import Reconstruction
from leakgauge.adversary.beginning import Key
from leakgauge.adversary.solver import Solution
from leakgauge.adversary.unknowns import CODES, INPUTS, SOFT_LABELS


@dataclass(frozen=True)
class Best:
    """One of them."""

    objective: float
    inputs: Tensor
    labels: Tensor
    trace: Tensor
    status: str
    codes: Tensor | None


@dataclass
class Winners:
    """By observation and setting; ``codes``: those of a generator are part of the result."""

    codes: bool
    best: dict[tuple[int, int], Best] = field(default_factory=dict)

    def misses(self, observation: int, setting: int, target: float) -> bool:
        place = (observation, setting)
        return place not in self.best or not self.best[place].objective <= target

    def keep(self, keys: Sequence[Key], solution: Solution, labels: Tensor | None) -> None:
        """Where better than before; a tie, or nothing finite, keeps the earlier one. No labels: those searched for."""
        labels = solution.unknowns[SOFT_LABELS] if labels is None else labels
        hard = labels.argmax(-1) if labels.dim() == 3 else labels  # soft where searched for or mixed
        for n, key in enumerate(keys):
            objective, place = float(solution.objective[n]), (key.observation, key.setting)
            if place not in self.best or objective < self.best[place].objective:
                self.best[place] = Best(
                    objective,
                    solution.unknowns[INPUTS][n].clone(),
                    hard[n],
                    solution.trace[:, n].clone(),
                    solution.status[n],
                    solution.unknowns[CODES][n].clone() if self.codes else None,
                )

    def result(self, setting: int, evaluations: int, path: str, dtype: torch.dtype) -> Reconstruction:
        won = [self.best[place] for place in sorted(self.best) if place[1] == setting]
        return Reconstruction(
            torch.stack([one.inputs for one in won]),
            torch.stack([one.labels for one in won]),
            -torch.tensor([one.objective for one in won], dtype=dtype),
            tuple(one.trace[~one.trace.isnan()] for one in won),
            tuple(one.status for one in won),
            evaluations,
            path,
            codes=torch.stack([one.codes for one in won if one.codes is not None]) if self.codes else None,
        )


__all__ = ["Winners"]
