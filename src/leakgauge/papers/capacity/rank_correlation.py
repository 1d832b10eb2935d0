"""Which measure orders the attack's error better: ε, or the Bayes capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from leakgauge.papers.capacity.points import Point


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation with the mean MSE over points, with a bootstrap interval over records."""

    value: float
    low: float
    high: float


def rank_correlations(points: Sequence[Point], *, resamples: int = 2000, seed: int = 0) -> dict[str, RankCorrelation]:
    """How well ε and log capacity order the attack's mean MSE, over all points given; −1 is a perfect proxy.

    ``difference`` is that of the two absolute values (capacity minus ε): above zero, capacity is the better proxy.
    """
    errors = np.stack([point.mse.double().numpy() for point in points])
    proxies = {"epsilon": [p.epsilon for p in points], "log capacity": [p.log_capacity for p in points]}
    rng = np.random.default_rng(seed)
    draws = rng.integers(errors.shape[1], size=(resamples, errors.shape[1]))

    def values(columns: NDArray[np.int64]) -> dict[str, float]:
        mean = errors[:, columns].mean(1)
        correlations = {name: float(stats.spearmanr(proxy, mean).statistic) for name, proxy in proxies.items()}
        return {**correlations, "difference": abs(correlations["log capacity"]) - abs(correlations["epsilon"])}

    whole = values(np.arange(errors.shape[1]))
    again = [values(columns) for columns in draws]
    return {
        name: RankCorrelation(value, *(float(np.quantile([one[name] for one in again], q)) for q in (0.025, 0.975)))
        for name, value in whole.items()
    }
