"""The adversarial risk at δ, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.intervals import clopper_pearson


@dataclass(frozen=True)
class Risk:
    """The rate of failures among n records, with its interval ``[low, high]`` at ``confidence``."""

    rate: float
    low: float
    high: float
    n: int
    confidence: float = 0.95


def adversarial_risk(outcome: Tensor, delta: float | None = None, confidence: float = 0.95) -> Risk:
    """The adversary's risk at δ: the probability ``P(‖x − f(g)‖ > δ)`` that it ends outside the δ-ball of the record.

    ``outcome`` holds one distance per record, with ``delta``; or booleans, true where the attack succeeded, without.
    NaN and infinite distances are failures. LOW risk means a STRONG adversary. The interval is Clopper-Pearson's:
    it covers the true risk with at least the given confidence at any n, if the records are independent draws.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Section 4. https://arxiv.org/abs/2111.04706
    """
    outcome = torch.as_tensor(outcome).detach().flatten()
    if outcome.dtype is torch.bool:
        if delta is not None:
            raise DomainError("delta with booleans", where="adversarial_risk", remedy="give distances, or no delta")
        failed = ~outcome
    else:
        if delta is None or not delta >= 0:
            raise DomainError(
                f"distances need a δ ≥ 0, got {delta}", where="adversarial_risk", remedy="give delta, or booleans"
            )
        failed = ~(outcome <= delta)  # not "outcome > delta": NaN must count as a failure
    failures, n = int(failed.sum()), len(failed)
    low, high = clopper_pearson(failures, n, confidence)
    return Risk(failures / n, low, high, n, confidence)
