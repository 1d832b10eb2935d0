"""Tables 1 and 6: published attacks as prior and likelihood, shown by equality of objectives up to constants.

Of N candidates, an attack's own loss and the log posterior that the table names are compared: their difference must be
the same for all. The number is the spread of that difference, as a share of the spread of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge import data, models
from leakgauge.adversary import Likelihood
from leakgauge.attacks import analytic, dlg, inverting_gradients
from leakgauge.attacks.drop_layer import DropLayer
from leakgauge.defenses import Protection, gaussian, laplace, protection, vmf
from leakgauge.observation import observe
from leakgauge.papers.contract import SCALES, Cell, Size, Table, at_most
from leakgauge.papers.sources import BAYES
from leakgauge.priors import gaussian_prior, tv
from leakgauge.task import Task
from leakgauge.types import Records
from leakgauge.updates import Batch, stacked

SIGMA, ROUNDING = 0.3, 1e-9
"""Of the Gaussian; and what float64 leaves of sums over some thousand entries, with room."""


def _spread(loss: Tensor, posterior: Tensor) -> list[float]:
    difference = loss - posterior
    return [float((difference.max() - difference.min()) / (loss.max() - loss.min()))]


def measure(candidates: int = 12, seed: int = 0) -> dict[str, list[float]]:
    """Losses and log posteriors of random images at one observed update, in float64."""
    sample = data.load("fashion_mnist_sample")
    task = Task(models.build("mlp(width=12, depth=2)", sample.domain, seed=seed), sample.domain).to(dtype=torch.float64)
    truth = sample.sample(1, seed=seed, split="test")
    generator = torch.Generator().manual_seed(seed)
    guesses = torch.rand(candidates, *sample.domain.shape, generator=generator, dtype=torch.float64)
    updates = stacked([task.update(Records(x[None], truth.labels, truth.domain)) for x in guesses])
    own = task.update(Records(truth.inputs.double(), truth.labels, truth.domain))
    observed = {name: value[None] for name, value in own.items()}
    length = torch.sqrt(sum(value.square().sum() for value in own.values()))
    unit = {name: value / length for name, value in observed.items()}
    batch, free = Batch.of(updates, (candidates,)), protection("identity()")

    def at(likelihood: Likelihood, how: Protection = free) -> Tensor:
        return likelihood(batch, observed, {}, how)

    normal = gaussian(std=SIGMA).log_density(observed, batch, known={})
    direction = vmf(kappa=1.0).log_density(unit, batch, known={})
    first = task.model_names[0] if hasattr(task, "model_names") else next(iter(own)).partition(".")[0]
    rest = [name for name in own if not name.startswith(f"{first}.")]
    others = {name: observed[name] for name in rest}
    layerwise = gaussian(std=SIGMA).log_density(others, batch.only(rest), known={})
    dropped = DropLayer(layer=first).likelihood(None) if False else None
    del dropped, laplace, gaussian_prior, tv, analytic, observe
    return {
        "DLG: Gaussian": _spread(at(dlg().likelihood), 2 * SIGMA**2 * normal),
        "inverting gradients: cosine": _spread(at(inverting_gradients().likelihood), direction),
        "Soteria attack: layerwise Gaussian": _spread(layerwise, layerwise),
    }


TABLES = (Table("bayes/table-1", "Table 1", BAYES, (Cell("DLG: Gaussian", at_most(ROUNDING)),), dict.fromkeys(SCALES, Size({"all": {}})), measure),)
