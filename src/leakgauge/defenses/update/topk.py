"""Top-k sparsification: what people deploy to save bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from leakgauge import guards
from leakgauge.defenses.update.prune import Thresholded
from leakgauge.expr import register


@register("defense", "topk")
@dataclass(frozen=True, repr=False)
class TopK(Thresholded):
    """Keep the k largest entries of the whole update, or of each tensor.

    ``k = max(1, ⌈keep · n⌉)`` of n entries; the others become zero. Ties with the k-th survive, so that the choice
    is a function of the update. With one threshold for all tensors (``per="update"``) whole layers may vanish; with one
    for each it is ``prune(p=1-keep)`` but for the rounding of k. The density after noise is that of
    :class:`~leakgauge.defenses.update.MagnitudePrune`. What error feedback would add in later rounds is not modelled.

    References:
        Aji and Heafield, Sparse Communication for Distributed Gradient Descent, 2017.
        https://arxiv.org/abs/1704.05021; Lin et al., Deep Gradient Compression, 2018.
        https://arxiv.org/abs/1712.01887
    """

    keep: float
    per: Literal["update", "tensor"] = "update"

    def __post_init__(self) -> None:
        with guards.together():
            guards.inside(self.keep, "keep", "topk", 0.0, 1.0, closed_high=True)
            guards.choice(self.per, "per", "topk", ("update", "tensor"))

    @property
    def share(self) -> float:
        return self.keep

    def groups(self, names: Sequence[str]) -> list[list[str]]:
        return [list(names)] if self.per == "update" else [[name] for name in names]

    def pruned(self, entries: int) -> int:
        return entries - max(1, math.ceil(self.keep * entries))

    @classmethod
    def neutral(cls) -> Self:
        return cls(keep=1.0)
