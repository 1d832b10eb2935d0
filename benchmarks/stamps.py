"""Time per iteration from the clock at its end, so that setting up costs nobody anything."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

WARM = 1
"""Iterations at the start of a run that are not counted: they allocate what the others use again."""


@dataclass(frozen=True)
class Cost:
    """Seconds of processor and wall time for one iteration of one image."""

    cpu: float
    wall: float


@dataclass
class Stamps:
    """Both clocks after every iteration of one or more runs."""

    runs: list[list[tuple[float, float]]] = field(default_factory=list)

    def begin(self) -> None:
        self.runs.append([])

    def tick(self) -> None:
        self.runs[-1].append((time.process_time(), time.perf_counter()))

    def cost(self, images: int = 1) -> Cost:
        """The mean iteration after the first ones; each iteration moved ``images`` images."""
        counted = [run[WARM - 1 :] for run in self.runs]
        iterations = images * sum(len(run) - 1 for run in counted)
        return Cost(*(sum(run[-1][i] - run[0][i] for run in counted) / iterations for i in (0, 1)))
