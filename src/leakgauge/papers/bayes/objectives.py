"""Tables 1 and 6: published attacks as prior times likelihood, shown by equality of objectives up to constants.

Of some random candidates, the loss as the attack's paper writes it and the log posterior of the densities that the
table names are compared: their difference must be the same for all. The number is the spread of that difference, as a
share of the spread of the loss. Everything is in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge import data, models
from leakgauge.adversary.features import seen_of
from leakgauge.attacks import analytic
from leakgauge.client import Recipe
from leakgauge.defenses import VonMisesFisher, gaussian, laplace
from leakgauge.observation import observe
from leakgauge.papers.contract import SCALES, Cell, Size, Table, at_most
from leakgauge.papers.gradattack.network import conv_net
from leakgauge.papers.sources import BAYES
from leakgauge.priors import batch_norm, gaussian_prior, tv
from leakgauge.task import Task
from leakgauge.types import Candidate, Records
from leakgauge.updates import Batch, stacked

SIGMA, TV_WEIGHT, NORM_WEIGHT, DEFENDED = 0.3, 1e-4, 1e-6, "linear2.weight"
DEEP_INVERSION = "GradInversion, DeepInversion's term: batch norm"
ROUNDING = 1e-9
"""What float64 leaves of sums over some thousand entries, with room."""


def _spread(loss: Tensor, posterior: Tensor) -> list[float]:
    difference = loss - posterior
    return [float((difference.max() - difference.min()) / (loss.max() - loss.min()))]


def measure(candidates: int = 12, seed: int = 0) -> dict[str, list[float]]:
    """Losses and log posteriors of random images at one observed update."""
    sample = data.load("fashion_mnist_sample")
    task = Task(models.build("mlp(width=12, depth=2)", sample.domain, seed=seed), sample.domain).to(dtype=torch.float64)
    drawn = sample.sample(1, seed=seed, split="test")
    truth = Records(drawn.inputs.double(), drawn.labels, drawn.domain)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(candidates, *sample.domain.shape, generator=generator, dtype=torch.float64)
    updates = stacked([task.update(Records(one[None], truth.labels, truth.domain)) for one in x])
    observed = {name: value[None] for name, value in task.update(truth).items()}
    batch, candidate = Batch.of(updates, (candidates,)), Candidate(x[:, None], truth.labels.repeat(candidates, 1))

    # the losses as written in their papers
    gaps = {name: (updates[name] - observed[name]).flatten(1) for name in observed}
    square = {name: gap.square().sum(1) for name, gap in gaps.items()}
    flat, received = (torch.cat([tree[n].flatten(1) for n in observed], 1) for tree in (updates, observed))
    variation = x.diff(dim=-1).abs().flatten(1).mean(1) + x.diff(dim=-2).abs().flatten(1).mean(1)
    dlg = -sum(square.values(), torch.zeros(()))
    inverting = torch.cosine_similarity(flat, received, dim=1) - 1 - TV_WEIGHT * variation
    inversion = dlg - TV_WEIGHT * variation - NORM_WEIGHT * x.square().flatten(1).sum(1)
    absolute = -sum((gap.abs().sum(1) for gap in gaps.values()), torch.zeros(()))
    soteria = (
        -sum((value for name, value in square.items() if name != DEFENDED), torch.zeros(())) - TV_WEIGHT * variation
    )

    # the same as log posteriors, of the parts that adversaries are made of
    normal = 2 * SIGMA**2 * gaussian(std=SIGMA).log_density(observed, batch, known={})
    direction = VonMisesFisher(kappa=1.0).log_density(observed, batch, known={})
    smooth = (TV_WEIGHT * tv())(candidate)
    small = gaussian_prior(std=(2 * NORM_WEIGHT) ** -0.5)(candidate)
    others = [name for name in observed if name != DEFENDED]
    untouched = 2 * SIGMA**2 * gaussian(std=SIGMA).log_density(observed, batch.only(others), known={})
    return {
        "DLG: uniform, Gaussian": _spread(dlg, normal),
        "inverting gradients: TV, cosine": _spread(inverting, direction + smooth),
        "GradInversion without DeepInversion: TV + Gaussian, Gaussian": _spread(inversion, normal + smooth + small),
        DEEP_INVERSION: _deep_inversion(candidates, generator),
        "L1 of Table 2: uniform, Laplace": _spread(
            absolute, SIGMA * laplace(scale=SIGMA).log_density(observed, batch, known={})
        ),
        "Soteria attack: TV, layerwise Gaussian": _spread(soteria, untouched + smooth),
        "ATS attack: TV, cosine": _spread(inverting, direction + smooth),
        "PRECODE attack: any prior, Dirac": _dirac(task.protect("precode(k=8)"), truth),
    }


def _deep_inversion(candidates: int, generator: torch.Generator) -> list[float]:
    """``−Σ_l ‖μ_l(x) − m_l‖ + ‖σ²_l(x) − v_l‖`` of batches of two, layer by layer, and as the prior computes it."""
    sample = data.load("fashion_mnist_sample")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = conv_net(sample.domain, width=4).double()
    with torch.no_grad():
        network(sample.sample(32, seed=0).inputs.double())  # running statistics that have met data
    network.eval()
    x = torch.rand(candidates, 2, *sample.domain.shape, generator=generator, dtype=torch.float64)
    losses = []
    for batch in x:
        hidden, loss = batch, torch.zeros((), dtype=torch.float64)
        for layer in network.children():
            if isinstance(layer, nn.BatchNorm2d):
                numbers = hidden.transpose(0, 1).flatten(1)
                biased = (numbers.shape[1] - 1) / numbers.shape[1]
                mean, variance = numbers.mean(1), numbers.var(1, correction=0)
                loss = loss - (mean - layer.running_mean).norm() - (variance - biased * layer.running_var).norm()
            hidden = layer(hidden)
        losses.append(loss)
    task = Task(network, sample.domain, Recipe(batch=2))
    candidate = Candidate(
        x, torch.zeros(candidates, 2, dtype=torch.long), look=lambda one: seen_of(task, task.params, task.buffers, one)
    )
    return _spread(torch.stack(losses).detach(), batch_norm()(candidate).detach())


def _dirac(task: Task, truth: Records) -> list[float]:
    """How far the one point that explains a PRECODE update is from the record: the posterior has no width."""
    reconstruction = analytic()(task, observe(task, truth, seed=1))
    return [float((reconstruction.inputs[0] - truth.inputs).abs().max())]


def _table(number: int, title: str, names: tuple[str, ...]) -> Table:
    cells = tuple(Cell(name, at_most(ROUNDING, ours=True), claim=True) for name in names)
    sizes = dict.fromkeys(SCALES, Size({"all": {}}))
    return Table(f"bayes/table-{number}", f"Table {number}: {title}", BAYES, cells, sizes, measure, __doc__ or "")


TABLES = (
    _table(
        1,
        "attacks as prior and likelihood",
        (
            "DLG: uniform, Gaussian",
            "inverting gradients: TV, cosine",
            "GradInversion without DeepInversion: TV + Gaussian, Gaussian",
            DEEP_INVERSION,
            "L1 of Table 2: uniform, Laplace",
        ),
    ),
    _table(
        6,
        "attacks on heuristic defenses as prior and likelihood",
        ("Soteria attack: TV, layerwise Gaussian", "ATS attack: TV, cosine", "PRECODE attack: any prior, Dirac"),
    ),
)
