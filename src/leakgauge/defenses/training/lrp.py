"""Learning-rate perturbation: every local step is taken at a random rate, which the server does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.stages import TrainingPart
from leakgauge.expr import register
from leakgauge.laws import Uniform
from leakgauge.types import Nuisance


@register("defense", "lrp")
@dataclass(frozen=True, repr=False)
class LearningRatePerturbation(TrainingPart):
    """Multiply the rate of every local step by a hidden ``s ~ U(m (1 − spread), m (1 + spread))``, with ``m = share``.

    The paper draws the rate of each local step from ``U(0, 2 p_k N η)``: ``spread = 1`` and ``share = p_k N``, with
    share 2 in its defense tests. With one local step the rate is a positive scale of the whole update and nothing
    else: directions, labels read off signs and ``∂W/∂b`` do not change. With several, each step has a scale of its own.

    References:
        Wan et al., Enhancing Privacy Preservation in Federated Learning via Learning Rate Perturbation, 2023.
    """

    share: float = 1.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.positive(self.share, "share", "lrp")
            guards.inside(self.spread, "spread", "lrp", 0.0, 1.0, closed_low=True, closed_high=True)

    @property
    def law(self) -> Uniform:
        return Uniform(self.share * (1 - self.spread), self.share * (1 + self.spread))

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("scale", per="step", law=self.law),)

    def draw(self, steps: int, *, generator: Generator) -> dict[str, Tensor]:
        return {"scale": self.law.sample((steps,), generator=generator)}

    def rates(self, rates: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return rates * drawn["scale"].to(rates) if "scale" in drawn else rates

    @classmethod
    def neutral(cls) -> Self:
        return cls(spread=0.0)
