"""The batch-norm prior: a batch has the statistics that the network's norms expect."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.priors.base import PriorPart
from leakgauge.types import Candidate


@register("prior", "batch_norm")
@dataclass(frozen=True, repr=False)
class BatchNorm(PriorPart):
    """Minus the distance of a candidate batch's statistics from those that are expected, over all batch norms l.

    ``−Σ_l (‖μ_l(x) − m_l‖₂ + ‖σ²_l(x) − v_l‖₂)``; the first layer counts ``first`` times. What is expected is what the
    adversary knows of the private batch (granted, or read off shared buffers), else the running statistics. Both
    variances are the biased ones of a batch; published code compares a biased one with the unbiased running variance,
    which is not zero at the truth. Of several local steps or clients the statistics of all together at the first
    weights are compared, and of several rounds those of the first.

    References:
        Yin et al., Dreaming to Distill: Data-free Knowledge Transfer via DeepInversion, 2020 (where ``first`` is 10).
        https://arxiv.org/abs/1912.08795
        Huang et al., Evaluating Gradient Inversion Attacks and Defenses in Federated Learning, 2021.
        https://arxiv.org/abs/2112.00059
    """

    first: float = 1.0

    def __post_init__(self) -> None:
        guards.non_negative(self.first, "first", "batch_norm")

    def __call__(self, candidate: Candidate) -> Tensor:
        statistics, expected = candidate.statistics, candidate.expected
        if not statistics:
            raise DomainError(
                "the model has no batch norm, whose statistics this prior compares",
                where="batch_norm",
                remedy="leave batch_norm() out of the prior",
            )
        if set(expected) != set(statistics):
            lacking = next(name for name in statistics if name not in expected)
            raise DomainError(
                f"layer {lacking!r} keeps no running statistics, and those of the batch are not known",
                where="batch_norm",
                remedy='grant "batch_statistics", or leave batch_norm() out of the prior',
            )
        gaps = [
            sum(
                torch.linalg.vector_norm(own - other, dim=1) for own, other in zip(moments, expected[name], strict=True)
            )
            for name, moments in statistics.items()
        ]
        gaps[0] = self.first * gaps[0]
        return -torch.stack(gaps).sum(0)
