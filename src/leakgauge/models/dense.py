"""Networks of linear layers; they take records of any shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from leakgauge.errors import ModelError
from leakgauge.expr import register
from leakgauge.models.base import Network, at_least, sequence
from leakgauge.models.init import uniform
from leakgauge.types import Domain

MOST_LAYERS = 1000
"""Building layers takes time even without memory: a spec of one line must not keep ``check`` busy for hours."""


@register("model", "mlp")
@dataclass(frozen=True, repr=False)
class Mlp(Network):
    """``depth`` hidden linear layers of ``width`` with ReLU, then the classes.

    The default, 5 x 500, is the network on which the Bayesian framework breaks PRECODE; its code draws
    weights and biases from U(-0.05, 0.05), here ``uniform=0.05``. Without ``uniform`` torch's default
    initialisation. Records of any shape. The first layer's gradient reveals a single record exactly, as
    ``∂W_i / ∂b_i``.

    References:
        Balunović, Dimitrov, Staab and Vechev, Bayesian Framework for Gradient Leakage, 2022.
        https://arxiv.org/abs/2111.04706
    """

    width: int = 500
    depth: int = 5
    uniform: float | None = None

    def network(self, domain: Domain) -> nn.Module:
        at_least(self, width=self.width, depth=self.depth)
        if self.depth > MOST_LAYERS:
            raise ModelError(f"depth is {self.depth}", where=repr(self), remedy=f"give at most {MOST_LAYERS} layers")
        layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
        before = domain.size
        for i in range(1, self.depth + 1):
            layers += [(f"linear{i}", nn.Linear(before, self.width)), (f"relu{i}", nn.ReLU())]
            before = self.width
        model = sequence(*layers, (f"linear{self.depth + 1}", nn.Linear(before, domain.classes)))
        if self.uniform is None:
            return model
        number = isinstance(self.uniform, int | float)
        if not (number and self.uniform > 0 and math.isfinite(self.uniform)):
            raise ModelError(f"uniform is {self.uniform}", where=repr(self), remedy="give a finite bound above 0")
        return uniform(model, self.uniform)


@register("model", "logistic")
@dataclass(frozen=True, repr=False)
class Logistic(Network):
    """Logistic regression: one linear layer on the flattened record.

    For a batch of one its gradient ``(p − y) xᵀ`` reveals x up to a factor: the smallest network that leaks
    everything. Records of any shape; torch's default initialisation.
    """

    def network(self, domain: Domain) -> nn.Module:
        return sequence(("flatten", nn.Flatten()), ("linear", nn.Linear(domain.size, domain.classes)))
