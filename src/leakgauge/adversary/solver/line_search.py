"""A strong-Wolfe line search for N problems that each are at their own place in it.

References:
    Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.adversary.solver.rows import Rows


@dataclass(frozen=True)
class Trial(Rows):
    """A step along the direction, the objective there, and its slope along the direction."""

    step: Tensor
    value: Tensor
    slope: Tensor


@dataclass(frozen=True)
class LineSearch(Rows):
    """The bracket of every problem, and the step to try next.

    ``low`` is the end with the lower objective, ``gradient`` the gradient there. While ``zooming`` is false the far
    end is not known yet, and steps double.
    """

    step: Tensor
    low: Trial
    high: Trial
    gradient: Tensor
    zooming: Tensor
    tries: Tensor

    @classmethod
    def begin(cls, step: Tensor, value: Tensor, slope: Tensor, gradient: Tensor) -> LineSearch:
        """An empty bracket at the point where the search begins."""
        zero = torch.zeros_like(step)
        none = torch.zeros_like(step, dtype=torch.long)
        return cls(step, Trial(zero, value, slope), Trial(zero, zero, zero), gradient, none > 0, none)

    def tried(
        self, trial: Trial, gradient: Tensor, start: Tensor, slope: Tensor, wolfe: tuple[float, float]
    ) -> tuple[LineSearch, Tensor]:
        """The search after a trial, and which problems may accept it: ``start`` and ``slope`` are those at step 0."""
        c1, c2 = wolfe
        low = self.low
        above = trial.value > start + c1 * trial.step * slope
        above |= (trial.value >= low.value) & (self.zooming | (self.tries > 0))
        above |= ~trial.slope.isfinite()
        accepted = ~above & (trial.slope.abs() <= -c2 * slope)
        outward = torch.where(self.zooming, trial.slope * (self.high.step - low.step), trial.slope)
        rising = ~above & ~accepted & (outward >= 0)
        falling = ~above & ~accepted & ~rising
        # a trial that is too high is the far end; where the slope has turned, the old near end becomes the far one
        high = self.high.where(above, trial).where(rising, low)
        nearer = rising | falling
        zooming = ~accepted & (above | rising | self.zooming)
        search = replace(
            self,
            low=low.where(nearer, trial),
            high=high,
            gradient=torch.where(nearer.unsqueeze(1), gradient, self.gradient),
            zooming=zooming | self.zooming,
            tries=self.tries + 1,
        )
        return replace(search, step=torch.where(zooming, search.cubic(), 2 * trial.step)), accepted

    def cubic(self) -> Tensor:
        """The minimiser of the cubic through both ends of the bracket, kept away from them."""
        low, high = self.low, self.high
        width = high.step - low.step
        safe = torch.where(width == 0, 1.0, width)
        d1 = low.slope + high.slope - 3 * (low.value - high.value) / -safe
        root = d1.square() - low.slope * high.slope
        d2 = width.sign() * root.clamp(min=0).sqrt()
        step = high.step - width * (high.slope + d2 - d1) / (high.slope - low.slope + 2 * d2)
        left, right = torch.minimum(low.step, high.step), torch.maximum(low.step, high.step)
        margin = 0.1 * (right - left)
        inside = torch.minimum(torch.maximum(step, left + margin), right - margin)
        usable = step.isfinite() & (root >= 0)
        return torch.where(usable, inside, (low.step + high.step) / 2)
