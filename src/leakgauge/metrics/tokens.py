"""The metric of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.expr import register
from leakgauge.meaning import Meaning
from leakgauge.metrics.base import MetricPart, same_shape
from leakgauge.types import Kind


@register("metric", "token_share")
@dataclass(frozen=True, repr=False)
class TokenShare(MetricPart):
    """The share of places ``[n, length]`` that hold the right token: it judges texts.

    Strict: a text that is shifted by one place has nearly everything wrong.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("tokens",)
    meaning: ClassVar[Meaning] = Meaning(
        "token_share",
        "share of tokens",
        "share of tokens that are right, place by place",
        threshold=0.5,
        exact=1.0,
    )

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        same_shape(reconstruction, original, self.name)
        return (reconstruction == original).double().flatten(1).mean(1)
