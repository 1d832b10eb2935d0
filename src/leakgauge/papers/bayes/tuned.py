"""The adversaries of Table 2: tuned by a search on records that are not reported, then scored as the paper scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from leakgauge import data, models
from leakgauge.adversary import Adversary, Likelihood, adam, attack, cosine, density, exponential, l1, l2, ramp
from leakgauge.observation import observe, send
from leakgauge.papers.contract import Measured
from leakgauge.papers.conventions import (
    CIFAR_MEAN,
    CIFAR_STD,
    MNIST_MEAN,
    MNIST_STD,
    Constant,
    normalised,
    unclipped_psnr,
)
from leakgauge.priors import pixel_range, tv
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Prior, Records, Threat

Attack = Literal["bayes", "l2", "l1", "cosine"]
DEFENSES = {
    "gaussian": "gaussian(std=0.1)",
    "laplace": "laplace(scale=0.1)",
    "prune + gaussian": "random_prune(p=0.5) | gaussian(std=0.1)",
    "prune + laplace": "random_prune(p=0.5) | laplace(scale=0.1)",
}
UNITS: dict[Attack, float] = {"l2": 1e-2, "l1": 1e-1, "cosine": 1e-4, "bayes": 1.0}
"""The scale of each likelihood, around which the prior's weight is searched."""
SECOND: tuple[tuple[float, float, float], ...] = (
    *((f, 0.5, 0.98) for f in (0.5, 2.0)),
    *((1.0, lr, 0.98) for lr in (0.25, 0.75)),
    *((1.0, 0.5, decay) for decay in (0.95, 1.0)),
    (1.0, 0.25, 1.0),
    (0.5, 0.5, 1.0),
)
"""Factor of the weight, learning rate and its decay per step: the second stage, around the best of the first."""


def constants(name: str) -> tuple[Constant, Constant]:
    """Mean and standard deviation by which the paper normalises."""
    return (CIFAR_MEAN, CIFAR_STD) if name == "cifar10" else (MNIST_MEAN, MNIST_STD)


@dataclass(frozen=True)
class Setting:
    """One adversary: ``fac·log p + TV`` of the paper is here ``log p + TV/fac``, which Adam cannot tell apart."""

    attack: Attack
    weight: float
    lr: float = 0.5
    decay: float = 0.98
    steps: int = 200
    range: float = 0.0
    """Weight of the pixel range (Table 5), as a share of the prior's, in the units of normalised space."""

    def adversary(self, data_name: str = "mnist") -> Adversary:
        likelihoods: dict[Attack, Likelihood] = {"l2": l2(), "l1": l1(), "cosine": cosine(), "bayes": density()}
        smooth = self.weight * tv(kind="quadratic", periodic=True, reduce="sum")
        prior: Prior = smooth
        if self.range:
            mean, std = constants(data_name)
            assert isinstance(mean, float), "the pixel range is searched on grey images"
            assert isinstance(std, float)
            prior = smooth + self.range * self.weight * pixel_range(low=-mean / std, high=(1 - mean) / std)
        return Adversary(
            likelihood=likelihoods[self.attack],
            prior=prior,
            solver=adam(lr=self.lr, steps=self.steps, schedule=exponential(rate=self.decay), box=False),
            anneal=ramp(start=1.0, length=self.steps // 2),
        )


def task_at(name: str, defense: str, step: int, seed: int, model: str = "bayes_cnn") -> Task:
    """The paper's network with LeCun's initialisation, after ``step`` steps of training with the defense.

    The paper's training is not released. Ours takes the defaults of what is: Adam, rate 0.001, one image per step, with
    the defended updates.
    """
    dataset = data.load(name)
    task = Task(models.build(model, dataset.domain, seed=seed), dataset.domain).protect(DEFENSES[defense])
    if not step:
        return task
    mean, std = constants(name)
    records = normalised(dataset.sample(step, seed=seed + 5), mean, std)
    weights = {weight: value.detach().clone() for weight, value in task.params.items()}
    optimiser = torch.optim.Adam(weights.values(), 1e-3)
    for place in range(step):
        generator = torch.Generator().manual_seed(seed_of(seed, place))
        one = task.protection.encode(records, torch.tensor([place]), generator=generator)
        sent = send(task, one, weights, (seed, place)).observed
        for weight, value in weights.items():
            value.grad = sent[weight]
        optimiser.step()
    return task.at(weights)


def measure(
    cell: str,
    defense: str,
    attack_by: Attack,
    name: str = "mnist",
    step: int = 0,
    mask: bool = False,
    tuning: int = 10,
    reported: int = 20,
    steps: int = 200,
    ranges: Sequence[float] = (0.0,),
    on_reported: bool = False,
    model: str = "bayes_cnn",
    seed: int = 0,
) -> Measured:
    """One cell: 15 settings on ``tuning`` training images in two stages, then test images that tuning never saw.

    ``tuning=0`` takes the scale of the likelihood as the weight and searches nothing; ``on_reported`` tunes on the
    first of the reported images, as the released code does.
    """
    mean, std = constants(name)
    task, threat = task_at(name, defense, step, seed, model), Threat(grants=frozenset({"mask"} if mask else ()))
    dataset, unit = data.load(name), UNITS[attack_by]
    held_out = normalised(dataset.sample(reported, seed=seed, split="test"), mean, std)
    best, score = Setting(attack_by, unit, steps=steps, range=ranges[0]), float("nan")
    if tuning:
        private = held_out[:tuning] if on_reported else normalised(dataset.sample(tuning, seed=seed), mean, std)
        observations = observe(task, private, threat=threat, seed=seed + (2 if on_reported else 1))

        def chosen(settings: Sequence[Setting]) -> tuple[float, Setting]:
            results = attack([one.adversary(name) for one in settings], task, observations, seed=seed)
            scores = [float(unclipped_psnr(r.inputs[:, 0], private.inputs, std).mean()) for r in results]
            place = max(range(len(scores)), key=scores.__getitem__)
            return scores[place], settings[place]

        weights = [unit * 10 ** (k / 2) for k in range(-3, 4)]
        first = chosen([Setting(attack_by, w, steps=steps, range=r) for w in weights for r in ranges])
        second = [Setting(attack_by, first[1].weight * f, lr, d, steps, first[1].range) for f, lr, d in SECOND]
        score, best = max(first, chosen(second), key=lambda pair: pair[0])
    return _scored(cell, best, score, task, held_out, threat, name, std, seed)


def _scored(
    cell: str,
    best: Setting,
    score: float,
    task: Task,
    held_out: Records,
    threat: Threat,
    name: str,
    std: Constant,
    seed: int,
) -> Measured:
    observations = observe(task, held_out, threat=threat, seed=seed + 2)
    result = best.adversary(name)(task, observations, seed=seed)
    psnr = unclipped_psnr(result.inputs[:, 0], held_out.inputs, std)
    note = f"weight {best.weight:.3g}, rate {best.lr}, decay {best.decay}, {score:.2f} dB where it was tuned"
    return Measured({cell: psnr.tolist()}, {cell: note})
