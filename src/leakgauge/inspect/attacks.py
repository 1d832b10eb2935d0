"""Which attacks suit a captured update: all of them blind to its scale, since the learning rate is unknown."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from leakgauge.adversary import Adversary, Reconstruction, cosine, scaled_l2, signed_adam
from leakgauge.adversary.solver import Lbfgs
from leakgauge.attacks import Analytic
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import first_linear
from leakgauge.attacks.norms import with_statistics
from leakgauge.attacks.recovering import obstacle
from leakgauge.errors import ModelError
from leakgauge.priors import tv, uniform
from leakgauge.task import Task

Attack = Callable[..., Reconstruction]
KINKED = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.PReLU,
    nn.RReLU,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Threshold,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
)
SMOOTH = (nn.Sigmoid, nn.Tanh, nn.Softplus, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish)


def attacks_on(task: Task, batch: int) -> list[Attack]:
    """The attacks that suit a model.

    A first linear layer with a bias gives a single record away, and batches where it meets ReLU (``adaptive()`` takes
    them apart); smooth networks suit L-BFGS, others signed Adam with total variation; where the modules do not tell,
    both are run and the one that explains more of the update wins. Batch norms in train mode add their own prior.
    """
    if batch > 1 and obstacle(task) is None:
        return [Adaptive(steps=500)]
    modules = list(task.model.modules())
    kinked = any(isinstance(module, KINKED) for module in modules)
    smooth = not kinked and any(isinstance(module, SMOOTH) for module in modules)
    attacks: list[Attack] = [Analytic()] if batch == 1 and _starts_linear(task) else []
    if not kinked:
        attacks.append(Adversary(scaled_l2(), solver=Lbfgs(steps=400, target=1e-7), restarts=2))
    if not smooth:
        prior = 1e-3 * tv() if task.domain.kind == "image" else uniform()
        attacks.append(Adversary(cosine(), prior=prior, solver=signed_adam(lr=0.1, steps=500)))
    return [with_statistics(one, task, known=False) if isinstance(one, Adversary) else one for one in attacks]


def _starts_linear(task: Task) -> bool:
    try:
        first_linear(task)
    except ModelError:
        return False
    return True
