"""DLG and iDLG: match the gradient in L2 with L-BFGS, labels optimised or inferred."""

from __future__ import annotations

from leakgauge.adversary import Adversary, l2, lbfgs
from leakgauge.expr import register
from leakgauge.priors import uniform


@register("attack", "dlg")
def dlg(steps: int = 2000, restarts: int = 4, target: float = 1e-6) -> Adversary:
    """Deep leakage from gradients: inputs and soft labels, ``−‖u − o‖²``, no prior.

    The published loop takes 300 outer steps of torch's L-BFGS (up to 20 evaluations each) without a line search and
    often diverges; ours has a strong-Wolfe line search and starts again while the loss stays above ``target``.
    ``steps`` counts evaluations: grey 28x28 images take some hundreds, colour 32x32 images some thousands. Needs a
    smooth network.

    References:
        Zhu et al., Deep Leakage from Gradients, 2019. https://arxiv.org/abs/1906.08935
    """
    return Adversary(
        likelihood=l2(),
        prior=uniform(),
        solver=lbfgs(steps=steps, history=100, target=target),
        labels="joint",
        restarts=restarts,
    )


@register("attack", "idlg")
def idlg(steps: int = 2000, restarts: int = 4, target: float = 1e-6) -> Adversary:
    """Improved DLG: the label is read off the last layer first, then DLG over the inputs alone.

    The published rule takes the lowest row sum of the last weight gradient, which needs non-negative features
    (``rule="rows"``); where there is a bias its sign says the same without that need, and is used.

    References:
        Zhao et al., iDLG, 2020. https://arxiv.org/abs/2001.02610
    """
    return Adversary(
        likelihood=l2(), solver=lbfgs(steps=steps, history=100, target=target), labels="inferred", restarts=restarts
    )
