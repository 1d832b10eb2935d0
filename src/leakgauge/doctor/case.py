"""What the parts of the doctor's search share: the evidence, the belief, the budget, and every fit so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from leakgauge.doctor.replay import Replayer
from leakgauge.doctor.setup import Setup


class Fit(NamedTuple):
    """A set-up and how far our client under it is from theirs."""

    residual: float
    setup: Setup


@dataclass
class Case:
    """One client's evidence under examination.

    ``budget`` is the number of gradients after which no further structure is tried; ``fits`` holds every fit,
    ``structures`` those of several steps, which the search for an order starts from.
    """

    replayer: Replayer
    believed: Setup
    budget: int = 800
    fits: list[Fit] = field(default_factory=list)
    structures: list[Fit] = field(default_factory=list)

    def explains(self, fit: Fit) -> bool:
        """Whether rounding accounts for the residual."""
        return fit.residual <= self.replayer.tolerance(fit.setup)

    def residual(self, setup: Setup) -> Fit:
        return Fit(self.replayer.residual(setup), setup)

    def note(self, fit: Fit) -> Fit:
        self.fits.append(fit)
        return fit

    @property
    def even(self) -> bool:
        """Whether all weights moved by nearly the same amount, as in the first step of Adam or of a sign method."""
        sizes = self.replayer.observed(self.believed).abs()
        moved = sizes[sizes > 0]
        return len(moved) > 10 and float(moved.std() / moved.mean()) < 0.2

    @property
    def unreadable(self) -> bool:
        """Whether the files show no change, or one that rounding hides."""
        replayer, believed = self.replayer, self.believed
        return not float(replayer.observed(believed).norm()) or replayer.tolerance(believed) > 0.1

    @property
    def batches_counted(self) -> int:
        """How many batches the batch norms of "after" counted since "before"; 0 where none says so."""
        before, after = self.replayer.evidence.before, self.replayer.evidence.after
        counts = [
            int(after[name]) - int(before[name])
            for name in before
            if name.endswith("num_batches_tracked") and name in after
        ]
        return max(counts, default=0)


def nearest(*fits: Fit) -> Fit:
    """The fit with the least residual, the first of equal ones."""
    return min(fits, key=lambda fit: fit.residual)
