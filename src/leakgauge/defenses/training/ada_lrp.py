"""Adaptive learning-rate perturbation: a client with more classes takes larger random steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.stages import TrainingPart
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.laws import Uniform
from leakgauge.types import Nuisance


@register("defense", "ada_lrp")
@dataclass(frozen=True, repr=False)
class AdaptiveLearningRatePerturbation(TrainingPart):
    """Multiply the rate of every local step by a hidden ``s ~ U(0, 2 K m)``, ``K = ζ (|Y_k| − mean |Y|) + β``.

    m is ``share``, the paper's ``p_k N`` where no scheme of aggregation has scaled the rate already; ``classes`` is how
    many classes this client has, ``mean_classes`` the mean over all clients, which they learn by a secure sum
    (:func:`leakgauge.fl.federate` fills in both). Where they are not said the client is average, K = β. Client and
    adversary are taken to know K: the server does not, and has the wider law of all clients. A factor K ≤ 0, which
    few classes and a large ζ give, would be no rate, and is refused. The paper has β = 1 and ζ = 1/6 (MNIST), 1/10
    (CIFAR-10), 1/20 (CIFAR-100) and 1/400 (ImageNet). As with LRP, one local step is scaled and nothing else.

    References:
        Wan et al., Enhancing Privacy Preservation in Federated Learning via Learning Rate Perturbation, 2023, eq. 13.
    """

    zeta: float = 1 / 6
    beta: float = 1.0
    share: float = 1.0
    classes: int | None = None
    mean_classes: float | None = None
    spread: float = 1.0

    def __post_init__(self) -> None:
        with guards.together():
            guards.non_negative(self.zeta, "zeta", "ada_lrp")
            guards.positive(self.beta, "beta", "ada_lrp")
            guards.positive(self.share, "share", "ada_lrp")
            guards.inside(self.spread, "spread", "ada_lrp", 0.0, 1.0, closed_low=True, closed_high=True)
        if (self.classes is None) != (self.mean_classes is None):
            raise DomainError(
                "a number of classes needs the mean of all clients, and the other way round",
                where="ada_lrp",
                remedy="give classes and mean_classes, or neither",
            )
        if self.classes is not None and self.mean_classes is not None:
            guards.count(self.classes, "classes", "ada_lrp")
            guards.positive(self.mean_classes, "mean_classes", "ada_lrp")
        if self.factor <= 0:
            largest = self.beta / (float(self.mean_classes or 0) - float(self.classes or 0))
            raise DomainError(
                f"a client with {self.classes} classes, of {self.mean_classes:g} on average, would have the factor "
                f"{self.factor:.3g}, and no rate",
                where="ada_lrp",
                remedy=f"give zeta below {largest:.3g}",
            )

    @property
    def factor(self) -> float:
        """K: 1 leaves the expected rate as it is."""
        if self.classes is None or self.mean_classes is None:
            return self.beta
        return self.zeta * (self.classes - self.mean_classes) + self.beta

    @property
    def law(self) -> Uniform:
        middle = self.factor * self.share
        return Uniform(middle * (1 - self.spread), middle * (1 + self.spread))

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("scale", per="step", law=self.law),)

    def draw(self, steps: int, *, generator: Generator) -> dict[str, Tensor]:
        return {"scale": self.law.sample((steps,), generator=generator)}

    def rates(self, rates: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return rates * drawn["scale"].to(rates) if "scale" in drawn else rates

    def of_client(self, classes: int, mean_classes: float) -> Self:
        return replace(self, classes=classes, mean_classes=mean_classes)

    @classmethod
    def neutral(cls) -> Self:
        return cls(zeta=0.0, spread=0.0)
