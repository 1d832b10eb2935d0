"""The corridor between what an attack reached (below) and what no adversary can beat (above).

``1 − R(f)``, the success of an attack f, is what the Bayes paper's adversarial risk leaves; its Clopper-Pearson limits
are compared with a ceiling. The lower limit above the ceiling is a contradiction: a bug or a broken assumption.

References:
    Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Section 4 (adversarial risk).
    https://arxiv.org/abs/2111.04706
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leakgauge import guards
from leakgauge.bounds.best_guess import lower_limit, upper_limit
from leakgauge.errors import DomainError

State = Literal["open", "tight", "contradiction", "no bound"]


@dataclass(frozen=True)
class Corridor:
    """Success of an attack with its one-sided limits, the ceiling, and how the two compare.

    ``open``: there is a gap between them; ``tight``: the attack's upper limit reaches the ceiling, its lower limit at
    least half of it, so that neither a much better attack nor a much better proof exists (this cannot be shown with few
    records); ``contradiction``: the lower limit exceeds the ceiling.
    """

    success: float
    low: float
    high: float
    ceiling: float | None
    trials: int
    confidence: float
    state: State
    sentence: str

    @property
    def risk(self) -> float:
        """``R(f) = 1 − success``, the adversarial risk; low risk is a strong adversary."""
        return 1 - self.success


def corridor(hits: int, trials: int, ceiling: float | None, *, confidence: float = 0.99) -> Corridor:
    """Compare ``hits`` successes in ``trials`` independent records with a ceiling on P(success), or None.

    A valid ceiling is contradicted with probability at most ``1 − confidence`` (per cell; correct for many cells).
    """
    guards.count(trials, "trials", "corridor")
    if guards.count(hits, "hits", "corridor", least=0) > trials:
        raise DomainError(
            f"hits must be at most trials = {trials}, got {hits}", remedy="count a record once", where="corridor"
        )
    low, high = lower_limit(hits, trials, confidence=confidence), upper_limit(hits, trials, confidence=confidence)
    success = hits / trials
    reached = f"{hits} of {trials} records ({low:.3g} to {high:.3g} at {100 * confidence:.4g} % each side)"
    state: State
    if ceiling is None:
        state, sentence = "no bound", f"the attack reached {reached}; nothing is proven above it"
    else:
        top = guards.probability(ceiling, "ceiling", "corridor")
        if low > top:
            state = "contradiction"
            sentence = (
                f"the attack reached {reached}, more than the ceiling {top:.4g} allows: an assumption does not hold"
            )
        elif high >= top and low >= top / 2:
            state, sentence = "tight", f"the attack reached {reached}, and the ceiling is {top:.4g}: tight"
        else:
            state = "open"
            wide = "too few records to tell" if high >= top else "what lies between is open"
            sentence = f"the attack reached {reached}, the ceiling is {top:.4g}: {wide}"
    return Corridor(success, low, high, ceiling, trials, confidence, state, sentence)
