"""Searches of the papers, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leakgauge.tune.space import Space

BETA = "prior"
"""The name of the prior's weight in the spaces of :data:`PRESETS`."""


@dataclass(frozen=True)
class Preset:
    """Two stages, each a grid: a wide ``first`` one, and the one that ``then`` lays around its best point."""

    name: str
    about: str
    first: Space
    points: int
    then: Callable[[Mapping[str, Any]], Space]
    around: int

    @property
    def trials(self) -> int:
        """Of both stages; the second is counted around the middle of the first."""
        middle = {name: within.points(3)[1] for name, within in self.first.ranges.items()}
        return len(self.first.grid(self.points)) + len(self.then(middle).grid(self.around))


_BAYES = (
    "bayes(prior={beta}*tv(kind='quadratic', periodic=True, reduce='sum'), "
    "solver=adam(lr={lr}, steps={steps}, schedule=exponential(rate={decay})))"
)


def bayes(steps: int = 200) -> Preset:
    """The search of the Bayes paper: first the range of the prior's weight β, then a grid in which it is narrow.

    First β over ``[1e-7, 1e5]`` on a logarithmic scale, everything else at one initial value; then
    ``[0.5 β*, 2 β*]`` around the best, with learning rates and decays. The paper's grids have 540 points for the Bayes
    adversary, and their values are not printed; these have 13 and 27.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, Appendix A.3. https://arxiv.org/abs/2111.04706
    """

    def around(best: Mapping[str, Any]) -> Space:
        beta = float(best[BETA])
        near = f"choice({0.5 * beta:.4g}, {beta:.4g}, {2 * beta:.4g})"
        grid = {"lr": "choice(0.25, 0.5, 0.75)", "decay": "choice(0.95, 0.98, 1.0)"}
        return Space.of(_BAYES.format(beta=near, steps=steps, **grid))

    first = Space.of(_BAYES.format(beta="log(1e-7, 1e5)", lr=0.5, decay=0.98, steps=steps))
    return Preset("bayes", "the range of β, then a grid (Bayes paper, Appendix A.3)", first, 13, around, 3)


PRESETS: dict[str, Callable[[], Preset]] = {"bayes": bayes}

__all__ = ["PRESETS", "Preset", "bayes"]
