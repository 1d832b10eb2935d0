"""Learning-rate perturbation: every local step is taken at a random rate, which the server does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator

from leakgauge import guards
from leakgauge.defenses.stages import TrainingPart
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.types import Release, Tree


@register("defense", "lrp")
@dataclass(frozen=True, repr=False)
class LearningRatePerturbation(TrainingPart):
    """Multiply the update by a hidden ``s ~ U(m (1 − spread), m (1 + spread))``, with ``m = share``.

    The paper draws the rate of each local step from ``U(0, 2 p_k N η)``: ``spread = 1`` and ``share = p_k N``, with
    share 2 in its defense tests. With one local step the rate is a positive scale of the whole update and nothing
    else: directions, labels read off signs and ``∂W/∂b`` do not change. Several local steps draw several rates, which
    are not modelled here.

    References:
        Wan et al., Enhancing Privacy Preservation in Federated Learning via Learning Rate Perturbation, 2023.
    """

    share: float = 1.0
    spread: float = 1.0
    nuisances: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        guards.positive(self.share, "share", "lrp")
        guards.inside(self.spread, "spread", "lrp", 0.0, 1.0, closed_low=True, closed_high=True)

    @property
    def low(self) -> float:
        return self.share * (1 - self.spread)

    @property
    def high(self) -> float:
        return self.share * (1 + self.spread)

    def check(self, *, local_steps: int) -> None:
        if local_steps > 1:
            raise DomainError(
                f"it is modelled for one local step, the recipe takes {local_steps}, each at a rate of its own",
                where=repr(self),
                remedy="set local_steps=1",
            )

    def perturb(self, update: Tree, *, generator: Generator) -> Release:
        # 1 − U[0, 1) lies in (0, 1]: the scale is positive, as a learning rate is
        u = 1 - torch.rand((), generator=generator, dtype=torch.float64)
        scale = float(self.low + (self.high - self.low) * u)
        return Release({n: t * scale for n, t in update.items()}, {"scale": {"": torch.tensor(scale)}})

    @classmethod
    def neutral(cls) -> Self:
        return cls(spread=0.0)
