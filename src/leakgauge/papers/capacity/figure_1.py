"""Bayes' capacity as a measure for reconstruction attacks: bounds above attacks, and Figure 1.

The paper gives neither the architecture of its 13,700-parameter network, nor δ, nor how ε becomes noise. Ours:
``cnn_13700``, untrained; δ = 1e-5; one observation of one record, which is replaced. Gaussian noise then has μ = 2/σ
(two clipped updates differ by at most 2), von Mises-Fisher noise ε = 2κ.

References:
    Biswas et al., Bayes' capacity as a measure for reconstruction attacks in federated learning, 2024, Section IV.
    https://arxiv.org/abs/2406.13569
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from leakgauge import data, models
from leakgauge.adversary import Adversary, adam, attack, density
from leakgauge.attacks import inverting_gradients
from leakgauge.bounds import (
    Bound,
    LogEstimate,
    bound_of_task,
    log_capacity_directions,
    log_capacity_gaussian,
    log_capacity_points,
    log_capacity_vmf,
    sigma_of,
)
from leakgauge.defenses import Gaussian, UpdatePart, VonMisesFisher, clip, gaussian, parts_of, vmf
from leakgauge.metrics import mse
from leakgauge.observation import Observation, observe
from leakgauge.priors import Finite
from leakgauge.task import Task
from leakgauge.types import Records, Tree
from leakgauge.updates import norm

DELTA = 1e-5
EPSILONS = tuple(float(10 ** (k / 2)) for k in range(13))
PARAMETERS = 13_700
MEMORY = 50_000_000
"""Small networks and many problems: what stays in the cache is twice as fast."""


@dataclass(frozen=True)
class Guessing:
    """Which of N secrets went through a protection: exact posterior maximiser, solver, and what bounds both.

    ``channel`` is the log capacity of the N-row channel by Monte Carlo, ``bound`` that of the whole mechanism with
    its ceiling at a best guess of 1/N. In the first ``attacked`` draws the solver was right ``reached`` times, the
    exact one ``exact_there``.
    """

    protection: str
    secrets: int
    draws: int
    exact: int
    channel: LogEstimate
    bound: Bound
    attacked: int
    reached: int
    exact_there: int


def guessing(
    how: UpdatePart,
    *,
    secrets: int = 64,
    draws: int = 2000,
    attacked: int = 200,
    label: int = 3,
    model: str = "mlp(width=16, depth=1)",
    name: str = "mnist",
    seed: int = 0,
) -> Guessing:
    """``secrets`` images of one class (so that labels tell nothing), each as likely, through a network's update.

    The exact maximiser compares the release with the N protected updates; the solver climbs
    ``log p(observed | x) + log p(x)``, p(x) being the N records blurred, from every record, and the secret nearest to
    its reconstruction is its guess.
    """
    dataset = data.load(name)
    where = np.flatnonzero(dataset.labels("test") == label)[:secrets]
    known = dataset.test[torch.as_tensor(where)]
    task = Task(models.build(model, dataset.domain, seed=seed), dataset.domain).protect(how)
    truth = torch.arange(draws) % secrets  # each as often as the others: which were drawn is then no chance
    observations = observe(task, known[truth], seed=seed + 2)
    rows = torch.stack([_flat(_at_the_noise(task, known[[i]])) for i in range(secrets)])
    received = torch.stack([_flat(one.rounds[0].observed) for one in observations])
    exact = _nearest(received, rows) == truth
    guessed = _nearest(_solved(task, observations[:attacked], known), known.inputs.flatten(1))
    rng = np.random.default_rng(seed + 3)
    noise = parts_of(how)[-1]
    points = rows.double().numpy()
    if isinstance(noise, VonMisesFisher):
        channel = log_capacity_directions(points, noise.kappa, rng=rng, draws=20_000)
    elif isinstance(noise, Gaussian):
        channel = log_capacity_points(points, noise.std, rng=rng, draws=20_000)
    else:
        raise TypeError(f"{noise!r} is neither Gaussian nor von Mises-Fisher")
    return Guessing(
        repr(how),
        secrets,
        draws,
        int(exact.sum()),
        channel,
        bound_of_task(task, guess=1 / secrets),
        attacked,
        int((guessed == truth[:attacked]).sum()),
        int(exact[:attacked].sum()),
    )


def _solved(task: Task, observations: Sequence[Observation], known: Records) -> Tensor:
    adversary = Adversary(
        likelihood=density(),
        prior=Finite(known.inputs.numpy(), std=0.1),
        solver=adam(lr=0.02, steps=5),
        start="prior",
        restarts=len(known),
    )
    return adversary(task, observations, memory=MEMORY).inputs.flatten(1)


def _at_the_noise(task: Task, record: Records) -> dict[str, Tensor]:
    """The update of a record at the door of the noise: clipped, and on the sphere for directions."""
    clipping, noise = parts_of(task.protection.update)
    update = clipping.release(task.update(record), None, generator=torch.Generator()).observed
    length = norm(update) if isinstance(noise, VonMisesFisher) else 1.0
    return {name: value / length for name, value in update.items()}


def _nearest(points: Tensor, rows: Tensor) -> Tensor:
    """The nearest row of each, which for Gaussian and von Mises-Fisher noise is the likeliest."""
    return torch.cdist(points.double(), rows.double()).argmin(1)


def _flat(update: Tree) -> Tensor:
    return torch.cat([value.flatten() for value in update.values()])


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


def figure_1(
    name: str,
    *,
    epsilons: Sequence[float] = EPSILONS,
    records: int = 16,
    tuning: int = 4,
    steps: int = 200,
    weights: Sequence[float] = (1e-4, 1e-2, 1e-1),
    model: str = "cnn_13700",
    seed: int = 0,
    say: Callable[[str], None] = print,
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
    say(f"{name}: weights of total variation {[weights[i] for i in best]}")
    points: list[Point] = []
    for chosen in sorted(set(best)):
        mine = [cell for cell, i in zip(cells, best, strict=True) if i == chosen]
        held_out = errors(mine, test, [settings[chosen]], 2)[0]
        for (kind, epsilon, part), error in zip(mine, held_out, strict=True):
            points.append(Point(name, kind, epsilon, _log_capacity(part), repr(part), weights[chosen], error))
        say(f"{name}: {len(points)} of {len(cells)} points")
    return sorted(points, key=lambda point: (point.mechanism, point.epsilon))


def _log_capacity(how: UpdatePart) -> float:
    noise = parts_of(how)[-1]
    if isinstance(noise, VonMisesFisher):
        return log_capacity_vmf(PARAMETERS, noise.kappa)
    assert isinstance(noise, Gaussian)
    return log_capacity_gaussian(PARAMETERS, 1.0, noise.std)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation with the mean MSE over points, with a bootstrap interval over records."""

    value: float
    low: float
    high: float


def rank_correlations(points: Sequence[Point], *, resamples: int = 2000, seed: int = 0) -> dict[str, RankCorrelation]:
    """How well ε and log capacity order the attack's mean MSE, over all points given; −1 is a perfect proxy.

    ``difference`` is that of the two absolute values (capacity minus ε): above zero, capacity is the better proxy.
    """
    errors = np.stack([point.mse.double().numpy() for point in points])
    proxies = {"epsilon": [p.epsilon for p in points], "log capacity": [p.log_capacity for p in points]}
    rng = np.random.default_rng(seed)
    draws = rng.integers(errors.shape[1], size=(resamples, errors.shape[1]))

    def values(columns: NDArray[np.int64]) -> dict[str, float]:
        mean = errors[:, columns].mean(1)
        correlations = {name: float(stats.spearmanr(proxy, mean).statistic) for name, proxy in proxies.items()}
        return {**correlations, "difference": abs(correlations["log capacity"]) - abs(correlations["epsilon"])}

    whole = values(np.arange(errors.shape[1]))
    again = [values(columns) for columns in draws]
    return {
        name: RankCorrelation(value, *(float(np.quantile([one[name] for one in again], q)) for q in (0.025, 0.975)))
        for name, value in whole.items()
    }
