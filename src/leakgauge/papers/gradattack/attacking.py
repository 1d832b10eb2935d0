"""GradAttack's attack on batches through batch norm: what Figures 1 and 2 (b), Tables 2 and 5 measure.

``1 − cos(u, o) + α_TV·TV + α_BN·R_BN`` on a client in train mode. Which statistics the adversary has is the question:

- *exact*: those of the private batch, as the target of R_BN, or in their place (candidates normalised by them);
- *infer*: the running ones as the target of R_BN; *proxy*: the running ones in their place.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from leakgauge import data, models
from leakgauge.adversary import Adversary, adam, cosine, step_decay
from leakgauge.adversary.statistics import Norms
from leakgauge.attacks import adaptive
from leakgauge.client import Recipe
from leakgauge.metrics import lpips, match, ssim
from leakgauge.observation import observe
from leakgauge.papers.contract import Measured
from leakgauge.papers.gradattack.network import conv_net
from leakgauge.priors import batch_norm, tv
from leakgauge.task import Task
from leakgauge.training import train
from leakgauge.types import Threat

SAMPLE = "fashion_mnist_sample"
Network = Literal["small", "resnet18"]
Knowledge = Literal["exact", "exact, in place", "infer", "proxy"]
KNOWLEDGE: dict[Knowledge, tuple[Norms, bool, float]] = {
    "exact": ("measured", True, 3e-3),
    "exact, in place": ("fixed", True, 0.0),
    "infer": ("measured", False, 1e-3),
    "proxy": ("fixed", False, 0.0),
}
"""How candidates are normalised, whether statistics are granted, and α_BN."""
PRUNED = {f"prune {p}": f"prune(p={p})" for p in (0.5, 0.7, 0.9, 0.95, 0.99, 0.999)}
MIXED = {
    **{f"MixUp {k}": f"mixup(k={k})" for k in (4, 6)},
    **{f"InstaHide {k}": f"instahide(k={k})" for k in (4, 6)},
    "prune 0.9 + MixUp 4": "mixup(k=4) | prune(p=0.9)",
    "prune 0.9 + InstaHide 4": "instahide(k=4) | prune(p=0.9)",
}
DEFENSES = {"none": "identity()", **PRUNED, **MIXED}


@lru_cache(maxsize=4)
def trained_task(name: str, network: Network, batch: int, steps: int, seed: int) -> Task:
    """The client in train mode, after some steps of undefended training: running statistics have met data."""
    dataset = data.load(name)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = conv_net(dataset.domain) if network == "small" else models.build(network, dataset.domain, seed=seed)
    task = Task(model, dataset.domain, Recipe(batch=batch, mode="train"))
    if not steps:
        return task
    records = dataset.sample(min(10_000, len(dataset.train)), seed=seed + 99)
    last = train(task, records, steps=steps, batch=min(128, len(records)), learning_rate=0.05, keep=(), seed=seed)[-1]
    return task.at(last.state)


def adversary(knowledge: Knowledge, steps: int) -> Adversary:
    """The paper's objective with weights for images in [0, 1], by Adam on softened signs, decayed as there.

    Labels that are not known are searched with the images.
    """
    norms, _, weight = KNOWLEDGE[knowledge]
    prior: Any = 1e-3 * tv() + weight * batch_norm() if weight else 1e-3 * tv()
    solver = adam(lr=0.1, steps=steps, sign="soft", schedule=step_decay())
    return Adversary(cosine(), prior, solver, labels="joint", start="grey", norms=norms)


def measure(
    cell: str,
    defense: str = "none",
    knowledge: Knowledge = "exact",
    labels: Literal["known", "joint"] = "known",
    batch: int = 16,
    batches: int = 2,
    steps: int = 300,
    name: str = "cifar10",
    network: Network = "small",
    training: int = 60,
    rounds: int = 2,
    perceptual: bool = True,
    seed: int = 0,
) -> Measured:
    """LPIPS (VGG, as in the paper) and SSIM of every image, matched one to one with the records of its batch.

    Under a mixing defense the adversary sees ``rounds`` rounds of the same records, is granted indices and
    coefficients as in the paper, and solves for the records.
    """
    task = trained_task(name, network, batch, training, seed).protect(DEFENSES[defense])
    private = data.load(name).sample(batch * batches, seed=seed, split="test")
    mixed = defense in MIXED
    grants = {"batch_statistics"} if KNOWLEDGE[knowledge][1] else set()
    grants |= {"indices", "coefficients"} if mixed else set()
    threat = Threat(labels=labels, grants=frozenset(grants))
    observed = observe(task, private, threat=threat, seed=seed + 1, rounds=rounds if mixed else 1)
    attack: Any = adaptive(steps=steps) if mixed else adversary(knowledge, steps)
    inputs = attack(task, observed, seed=seed).inputs
    truth = private.inputs.view_as(inputs)
    matched = match(inputs, truth).apply(inputs).flatten(0, 1).clamp(0, 1)
    return Measured(
        {f"{cell}: {metric}": score.tolist() for metric, score in _scores(matched, private.inputs, perceptual)},
        pictures={"original": private.inputs, cell: matched},
    )


def _scores(inputs: Tensor, truth: Tensor, perceptual: bool) -> list[tuple[str, Tensor]]:
    scores = [("SSIM", ssim(inputs, truth))]
    return [*scores, ("LPIPS", lpips(inputs, truth, net="vgg"))] if perceptual else scores
