"""The Bayes adversary: the density of the defense itself, a prior, Adam."""

from __future__ import annotations

from leakgauge.adversary import Adversary, adam, density, exponential
from leakgauge.adversary.solver import Ball, Constant, Schedule, Solver
from leakgauge.expr import register
from leakgauge.priors import tv
from leakgauge.types import Prior


@register("attack", "bayes")
def bayes(
    prior: Prior | None = None,
    solver: Solver | None = None,
    restarts: int = 1,
    ball: Ball | None = None,
    anneal: Schedule | None = None,
) -> Adversary:
    """Maximise ``log p(observed | x) + log p(x)``, averaged over the δ-ball if ``ball`` is given (Algorithm 1).

    Optimal up to the prior and the optimiser, for a defense with a density. The default prior is the paper's
    quadratic periodic total variation, the default solver its Adam with a decay at every iteration. The paper's
    experiments use k = 1 point at the centre of the ball, which is ``ball=None``.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022. https://arxiv.org/abs/2111.04706
    """
    return Adversary(
        likelihood=density(),
        prior=prior or tv(kind="quadratic", periodic=True, reduce="sum"),
        solver=solver or adam(lr=0.1, steps=400, schedule=exponential(rate=0.99)),
        restarts=restarts,
        ball=ball,
        anneal=anneal or Constant(),
    )
