"""Inverting gradients against both mechanisms of the paper, over a grid of ε: the points of Figure 1.

The paper gives neither the architecture of its 13,700-parameter network, nor δ, nor how ε becomes noise. Ours:
``cnn_13700``, untrained; δ = 1e-5; one observation of one record, which is replaced. Gaussian noise then has μ = 2/σ
(two clipped updates differ by at most 2), von Mises-Fisher noise ε = 2κ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import data, models
from leakgauge.adversary import Adversary, attack
from leakgauge.attacks import inverting_gradients
from leakgauge.bounds import log_capacity_gaussian, log_capacity_vmf, sigma_of
from leakgauge.defenses import Gaussian, UpdatePart, VonMisesFisher, clip, gaussian, parts_of, vmf
from leakgauge.metrics import mse
from leakgauge.observation import observe
from leakgauge.papers.capacity.guessing import MEMORY
from leakgauge.task import Task
from leakgauge.types import Records

DELTA = 1e-5
EPSILONS = tuple(float(10 ** (k / 2)) for k in range(13))
PARAMETERS = 13_700


@dataclass(frozen=True)
class Point:
    """One point of Figure 1: a mechanism at one ε, its log capacity, and the attack's MSE on every record."""

    data: str
    mechanism: str
    epsilon: float
    log_capacity: float
    protection: str
    tv_weight: float
    mse: Tensor


Cell = tuple[str, float, UpdatePart]
"""A mechanism's name, its ε, and the part."""


def mechanism(kind: str, epsilon: float, *, group: int = 1) -> UpdatePart:
    """DP-SGD of Algorithm 1 (``gaussian``) or 2 (``vmf``) with clipping norm 1 at ε, for groups of L records."""
    clipping = clip(norm=1.0, per="example")
    if kind == "vmf":
        return clipping | vmf(kappa=epsilon / 2)
    sigma = sigma_of(epsilon, delta=DELTA, relation="replace").sigma
    return clipping | gaussian(std=sigma / group)


def points_of(
    name: str,
    *,
    epsilons: Sequence[float] = EPSILONS,
    records: int = 16,
    tuning: int = 4,
    steps: int = 200,
    weights: Sequence[float] = (1e-4, 1e-2, 1e-1),
    model: str = "cnn_13700",
    seed: int = 0,
) -> list[Point]:
    """Inverting gradients against both mechanisms over a grid of ε: MSE in [0, 1] image space, labels known.

    The weight of total variation is chosen for every point on ``tuning`` train images; ``records`` test images count.
    """
    dataset = data.load(name)
    plain = Task(models.build(model, dataset.domain, seed=seed), dataset.domain)
    cells = [(kind, epsilon, mechanism(kind, epsilon)) for kind in ("gaussian", "vmf") for epsilon in epsilons]
    settings = [inverting_gradients(steps=steps, tv_weight=w) for w in weights]
    train, test = dataset.sample(tuning, seed=seed), dataset.sample(records, seed=seed, split="test")

    def errors(cells: Sequence[Cell], private: Records, how: Sequence[Adversary], offset: int) -> Tensor:
        """``[settings, cells, records]``; the attack is blind to the protection, so all cells are one batch."""
        observations = [
            one for _, _, part in cells for one in observe(plain.protect(part), private, seed=seed + offset)
        ]
        truth = private.inputs.repeat(len(cells), 1, 1, 1)
        reconstructions = attack(how, plain, observations, seed=seed, memory=MEMORY)
        return torch.stack([mse(r.inputs[:, 0], truth).view(len(cells), -1) for r in reconstructions])

    best = errors(cells, train, settings, 1).mean(2).argmin(0).tolist()
    points: list[Point] = []
    for chosen in sorted(set(best)):
        mine = [cell for cell, i in zip(cells, best, strict=True) if i == chosen]
        held_out = errors(mine, test, [settings[chosen]], 2)[0]
        for (kind, epsilon, part), error in zip(mine, held_out, strict=True):
            points.append(Point(name, kind, epsilon, _log_capacity(part), repr(part), weights[chosen], error))
    return sorted(points, key=lambda point: (point.mechanism, point.epsilon))


def _log_capacity(how: UpdatePart) -> float:
    noise = parts_of(how)[-1]
    if isinstance(noise, VonMisesFisher):
        return log_capacity_vmf(PARAMETERS, noise.kappa)
    assert isinstance(noise, Gaussian)
    return log_capacity_gaussian(PARAMETERS, 1.0, noise.std)
