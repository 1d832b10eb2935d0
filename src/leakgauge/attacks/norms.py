"""Against batch norm in train mode: candidates measure their own statistics, and the prior says what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.adversary import Adversary, Density
from leakgauge.adversary.statistics import are_leaked, have_running
from leakgauge.client import BATCH_STATISTICS
from leakgauge.observation import Observation
from leakgauge.priors import Uniform, batch_norm
from leakgauge.task import Task

EXACT, RUNNING = 3e-3, 1e-3
"""Weights of the batch-norm prior beside a cosine: known statistics are those of the batch, running ones only near.
A first choice on a few train batches of MNIST and Fashion-MNIST (three convolutions, batches of 8), not a sweep."""
NATS = 3000.0
"""What a weight beside a matching loss counts beside a density, as for total variation in ``adaptive()``."""


def with_statistics(adversary: Adversary, task: Task, *, known: bool) -> Adversary:
    """The adversary with a batch-norm prior, where the client is in train mode and there is something to compare with.

    ``known``: the statistics of the private batch are granted; shared buffers give them away as well.
    """
    if BATCH_STATISTICS not in task.nuisances or not has_statistics(task, known=known):
        return adversary
    exact = known or are_leaked(task)
    weight = (EXACT if exact else RUNNING) * (NATS if isinstance(adversary.likelihood, Density) else 1.0)
    penalty = weight * batch_norm()
    flat = isinstance(adversary.prior, Uniform)
    return replace(adversary, prior=penalty if flat else adversary.prior + penalty)  # type: ignore[operator]


def knows_statistics(observations: Sequence[Observation]) -> bool:
    """Whether the batch statistics of every round are granted."""
    return all(BATCH_STATISTICS in one.granted for each in observations for one in each.rounds)


def has_statistics(task: Task, *, known: bool) -> bool:
    """Whether the model has batch norms, and their statistics something to be compared with.

    In train mode those of the private batch, granted or leaked, or running ones of every layer; in eval mode these.
    """
    if BATCH_STATISTICS in task.nuisances:
        return known or are_leaked(task) or have_running(task)
    norms = [module for module in task.working.modules() if isinstance(module, _BatchNorm)]
    return bool(norms) and all(norm.running_mean is not None for norm in norms)
