"""Figure 4: the Bayes attack with the right and the wrong likelihood and prior, on data whose law is known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor, nn

from leakgauge.adversary import Adversary, adam, density
from leakgauge.defenses import gaussian, laplace
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Measured, Size, Table, at_least, difference
from leakgauge.papers.sources import BAYES
from leakgauge.priors import gaussian_prior, laplace_prior
from leakgauge.task import Task
from leakgauge.types import Domain, Records

TRUE = "laplace likelihood, gaussian prior"
WRONG = ("gaussian likelihood, gaussian prior", "gaussian likelihood, laplace prior")
PAIRS = (TRUE, "laplace likelihood, laplace prior", *WRONG)


def synthetic(records: int, *, classes: int = 10, seed: int = 0) -> Records:
    """The paper's data: ``x ~ N(0, I₂₀)``, ``y = argmax(x W)`` with a fixed random W."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(20, classes, generator=generator)
    x = torch.randn(records, 20, generator=generator)
    return Records(x, (x @ truth).argmax(1), Domain("table", (20,), classes))


def distances(records: int, steps: int = 200, scale: float = 0.1, width: int = 20, seed: int = 0) -> dict[str, Tensor]:
    """The four pairs (likelihood, prior): distance to the record at the end, ``[records]`` each.

    A 2-layer MLP under Laplace noise; Adam from the same starts. The wrong likelihood has the noise's true variance,
    the wrong prior the data's. The paper gives neither width nor number of classes: ours are in the signature.
    """
    private = synthetic(records, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    model = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, private.domain.classes))
    for p in model.parameters():
        nn.init.normal_(p, std=p.shape[-1] ** -0.5, generator=generator)
    task = Task(model, private.domain).protect(laplace(scale=scale))
    observations = observe(task, private, seed=seed)
    likelihoods = {"laplace": density(), "gaussian": density(assumed=gaussian(std=scale * math.sqrt(2)))}
    priors = {"gaussian": gaussian_prior(), "laplace": laplace_prior(scale=math.sqrt(0.5))}
    base, ends = Adversary(solver=adam(lr=0.1, steps=steps)), {}
    for (a, likelihood), (b, prior) in product(likelihoods.items(), priors.items()):
        reconstruction = replace(base, likelihood=likelihood, prior=prior)(task, observations, seed=seed)
        ends[f"{a} likelihood, {b} prior"] = (reconstruction.inputs[:, 0] - private.inputs).norm(dim=1)
    return ends


def measure(records: int, steps: int = 200, seed: int = 0) -> Measured:
    return Measured({pair: end.tolist() for pair, end in distances(records, steps, seed=seed).items()})


TABLES = (
    Table(
        "bayes/figure-4",
        "Figure 4: right and wrong likelihood and prior, distance to the record",
        BAYES,
        (
            *(Cell(pair) for pair in PAIRS),
            Cell(
                "true pair, closer than with the wrong likelihood",
                at_least(0),
                of=difference(PAIRS[2], TRUE),
                claim=True,
            ),
            Cell("true pair, closer than with both wrong", at_least(0), of=difference(PAIRS[3], TRUE), claim=True),
            Cell("true pair, closer than with the wrong prior", at_least(0), of=difference(PAIRS[1], TRUE)),
        ),
        {
            "smoke": Size({"one": {"records": 10, "steps": 50}}, ("10 records", "50 steps")),
            "small": Size({f"seed {s}": {"records": 100, "seed": s} for s in range(2)}),
            "full": Size({f"seed {s}": {"records": 1000, "seed": s} for s in range(5)}),
        },
        measure,
        "Mean distance after 200 Adam steps; the paper draws curves without numbers. Width 20 and 10 classes are ours.",
    ),
)
