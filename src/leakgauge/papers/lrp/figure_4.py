"""Figure 4: matching loss and LPIPS on the line between the latent that GGL finds and that of the true image.

``z(α) = (1 − α) z₁ + α z₂`` with z₁ from the attack and z₂ from an inversion of the generator, which sees the truth: no
adversary has it. Where the two curves rise and fall together, less loss means a better picture.
"""

from __future__ import annotations

from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

from leakgauge.observation import Observation
from leakgauge.papers.contract import Cell, Figure, Measured, Size, Table, at_least
from leakgauge.papers.lrp.generative import ANY_SCALE, GGL, generator, perceived, search, setting
from leakgauge.papers.sources import LRP
from leakgauge.priors.generators import Generator
from leakgauge.task import Task
from leakgauge.types import Records

POINTS = 11
ARMS = {
    "none": ("none", GGL),
    "noise 0.1": ("noise 0.1", GGL),
    "LRP": ("LRP", GGL),
    "LRP, any scale": ("LRP", ANY_SCALE),
}


def inverted(prior: Generator, records: Records, begin: Tensor, steps: int) -> Tensor:
    """Codes of the pictures nearest to the records, ``[n, codes]``, by Adam from where the attack ended."""
    draw, labels = prior.decoder(records.inputs, records.domain.shape), records.labels.unsqueeze(1)
    codes = begin.detach().clone().requires_grad_()
    optimiser = torch.optim.Adam([codes], 0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        drawn = draw(prior.begin(codes.unsqueeze(1), labels))[:, 0]
        (drawn - records.inputs).square().sum().backward()
        optimiser.step()
    return codes.detach()


def loss(task: Task, records: Records, observed: list[Observation], *, any_scale: bool) -> Tensor:
    """``‖u − o‖²/‖o‖²`` of every picture, or one less the cosine."""
    losses = []
    for i, one in enumerate(observed):
        update, received = task.update(records[i : i + 1]), one.rounds[0].observed
        u, o = (torch.cat([tree[name].flatten() for name in received]) for tree in (update, received))
        losses.append(1 - u @ o / (u.norm() * o.norm()) if any_scale else (u - o).square().sum() / o.square().sum())
    return torch.stack(losses)


def measure(
    arm: str,
    prefix: str = "",
    name: str = "fashion_mnist",
    model: str = "bayes_cnn",
    records: int = 8,
    steps: int = 150,
    public: int = 20_000,
    epochs: int = 6,
    perceptual: bool = True,
    inversion: int = 300,
    seed: int = 0,
) -> Measured:
    """Rank correlation of loss and LPIPS along the line, image by image (without LPIPS: of loss and squared error)."""
    defense, attack = ARMS[arm]
    task, private, observed = setting(defense, name, model, records, seed)
    prior = generator(name, public, epochs, seed)
    result = search(attack, defense, prior, steps)(task, observed, seed=seed)
    assert result.codes is not None
    ours = result.codes[:, 0, : prior.codes].detach()
    true, draw = inverted(prior, private, ours, inversion), prior.decoder(private.inputs, private.domain.shape)
    losses, gaps = [], []
    for alpha in torch.linspace(0, 1, POINTS).tolist():
        codes = ((1 - alpha) * ours + alpha * true).unsqueeze(1)
        inputs = draw(prior.begin(codes, private.labels.unsqueeze(1)))[:, 0].detach()
        drawn = Records(inputs, private.labels, private.domain)
        losses.append(loss(task, drawn, observed, any_scale=attack == ANY_SCALE))
        error = (inputs - private.inputs).square().flatten(1).mean(1)
        gaps.append(perceived(inputs, private.inputs, "vgg") if perceptual else error)
    curves = torch.stack(losses), torch.stack(gaps)
    ranks = [float(spearmanr(*pair).statistic) for pair in zip(*(each.T.tolist() for each in curves), strict=True)]
    least = (curves[0].argmin(0) == 0).double().tolist()
    lines = zip(("loss", "LPIPS" if perceptual else "squared error"), curves, strict=True)
    return Measured(
        {f"{prefix}{arm}: rank correlation": ranks, f"{prefix}{arm}: least loss where GGL ended": least},
        curves={
            f"{prefix}{arm}, {what}": [(i / (POINTS - 1), float(v)) for i, v in enumerate(curve.mean(1).tolist())]
            for what, curve in lines
        },
    )


def _work(prefix: str, arms: tuple[str, ...], **how: Any) -> dict[str, dict[str, Any]]:
    return {f"{prefix}{arm}": {"arm": arm, "prefix": prefix, **how} for arm in arms}


def _mean_gap(one: str, other: str) -> Any:
    return lambda s: [sum(s[one]) / len(s[one]) - sum(s[other]) / len(s[other])]


BRIEF, INSTEAD = "sample, ", "Fashion-MNIST and an autoencoder instead of ImageNet and BigGAN"
DOWNHILL = (
    "our generator draws the true image better than the search finds it: the loss falls from where GGL ended to the "
    "true latent for nearly every image, with LRP or without (see the rows of the least loss); the line says little of "
    "the defense"
)
FEW: dict[str, Any] = {"name": "fashion_mnist_sample", "model": "cnn_13700", "records": 3, "steps": 25}
FEW |= {"public": 1000, "epochs": 8, "perceptual": False, "inversion": 100}
TABLES = (
    Table(
        "lrp/figure-4",
        "Figure 4: loss and LPIPS between found and true latent",
        LRP,
        (
            *(Cell(f"{arm}: rank correlation", within=(-1, 1)) for arm in ARMS),
            *(Cell(f"{arm}: least loss where GGL ended", share=True) for arm in ARMS),
            Cell(
                "none above LRP",
                at_least(0),
                of=_mean_gap("none: rank correlation", "LRP: rank correlation"),
                claim=True,
            ),
            Cell(
                "any scale above LRP",
                at_least(0),
                of=_mean_gap("LRP, any scale: rank correlation", "LRP: rank correlation"),
            ),
            *(Cell(f"{BRIEF}{arm}: rank correlation", stand_in=True, within=(-1, 1)) for arm in ("none", "LRP")),
            Cell(
                f"{BRIEF}none above LRP",
                at_least(0),
                of=_mean_gap(f"{BRIEF}none: rank correlation", f"{BRIEF}LRP: rank correlation"),
                claim=True,
                stand_in=True,
            ),
        ),
        {
            "smoke": Size(
                _work(BRIEF, ("none", "LRP"), **FEW),
                ("Fashion-MNIST, 3 images; autoencoder of 1,000", "25 generations", "squared error instead of LPIPS"),
            ),
            "small": Size(
                _work("", tuple(ARMS)),
                (INSTEAD, "8 images", "150 generations"),
            ),
            "full": Size(_work("", tuple(ARMS), records=50, steps=800, public=60_000, epochs=20), (INSTEAD,)),
        },
        measure,
        __doc__ or "",
        {"none above LRP": DOWNHILL, "any scale above LRP": DOWNHILL},
        figures=tuple(
            Figure("α: from the latent found to the true one", label, of=of)
            for label, of in (("matching loss", ", loss"), ("LPIPS (VGG)", ", LPIPS"), ("MSE", ", squared error"))
        ),
    ),
)
