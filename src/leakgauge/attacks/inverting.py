"""Inverting gradients: cosine, total variation, signed Adam in the box."""

from __future__ import annotations

from leakgauge.adversary import Adversary, cosine, signed_adam
from leakgauge.expr import register
from leakgauge.priors import tv


@register("attack", "inverting_gradients")
def inverting_gradients(steps: int = 4800, lr: float = 0.1, tv_weight: float = 1e-4, restarts: int = 1) -> Adversary:
    """``cos(u, o) − 1 − w·TV(x)``, maximised by Adam on signed gradients, decayed x.1 at 3/8, 5/8, 7/8.

    Blind to any positive scale of the update. The published code works in normalised pixel space; here pixels
    live in [0, 1]: with the data's standard deviation s, a learning rate of theirs times s, and a weight divided by
    s, is ours.

    References:
        Geiping et al., Inverting Gradients, 2020. https://arxiv.org/abs/2003.14053
    """
    return Adversary(
        likelihood=cosine(), prior=tv_weight * tv(), solver=signed_adam(lr=lr, steps=steps), restarts=restarts
    )
