"""What is measured: networks, numbers of problems, likelihoods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

import leakgauge as lg
from benchmarks.networks import conv_net
from leakgauge.adversary import Likelihood, cosine, density, l1, l2, scaled_l2
from leakgauge.priors.generators import decoder_network

TV = 1e-4
"""The weight of total variation in every objective here, that of inverting gradients."""
CODES = 1e-5
"""The weight of the codes' prior, that of GIAS."""


@dataclass(frozen=True)
class Model:
    """A network with the number of problems it is attacked with at once, and the size of one timed run."""

    name: str
    shape: tuple[int, int, int]
    problems: int
    steps: int
    images: int
    """Images that a loop attacks, one after the other, in one timed run; of batches, so many batches."""
    batch: int = 1
    statistics: float = 0.0
    """The weight of the batch-norm prior; above 0 the client is in train mode, and its batch norms measure."""

    codes: int = 0
    """Above 0 the search moves so many codes of a generator in place of the image's pixels."""

    def network(self, domain: lg.Domain, seed: int) -> nn.Module:
        if not self.statistics:
            return lg.models.build("bayes_cnn" if self.codes else self.name, domain, seed=seed).eval()
        torch.manual_seed(seed)
        return conv_net(domain)

    def generator(self, seed: int = 0) -> nn.Module:
        """A decoder as ``train-prior`` makes it, untrained: what a step costs does not depend on its weights."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return decoder_network(self.codes, (256, 512), self.shape, True).eval().requires_grad_(False)

    @property
    def unknown(self) -> tuple[int, ...]:
        """The shape of what the solver moves for one record."""
        return (self.codes,) if self.codes else self.shape


@dataclass(frozen=True)
class Kind:
    """A likelihood with the protection it belongs to and what the adversary is granted."""

    likelihood: Likelihood
    protection: str = "identity()"
    grants: frozenset[str] = frozenset()


MODELS = {
    model.name: model
    for model in (
        Model("dlg_lenet", (1, 28, 28), problems=100, steps=12, images=20),
        Model("bayes_cnn", (1, 28, 28), problems=64, steps=6, images=8),
        Model("convbig", (3, 32, 32), problems=16, steps=6, images=1),
        Model("resnet18", (3, 32, 32), problems=4, steps=2, images=1),
        Model("norm_convnet", (1, 28, 28), problems=16, steps=4, images=4, batch=8, statistics=1e-3),
        Model("generator", (1, 28, 28), problems=64, steps=6, images=8, codes=32),
    )
}
STD, SCALE, PRUNED = 0.01, 0.01, 0.5
KINDS = {
    "cosine": Kind(cosine()),
    "l2": Kind(l2()),
    "l1": Kind(l1()),
    "scaled_l2": Kind(scaled_l2()),
    "known_mask": Kind(density(), f"random_prune(p={PRUNED}) | gaussian(std={STD})", frozenset({"mask"})),
    "hidden_mask": Kind(density(), f"random_prune(p={PRUNED}) | gaussian(std={STD})"),
    "laplace": Kind(density(), f"laplace(scale={SCALE})"),
}
SHARED = 64


@dataclass(frozen=True)
class Case:
    """One comparison. ``shared``: all problems are restarts of one observation."""

    model: Model
    kind: str
    problems: int
    shared: bool = False

    @property
    def name(self) -> str:
        return f"{self.model.name} {self.kind}" + (" shared" if self.shared else "")


def case(model: str, kind: str = "cosine", *, shared: bool = False) -> Case:
    """A comparison with the problems that its model is meant for, or 64 of one observation."""
    return Case(MODELS[model], kind, SHARED if shared else MODELS[model].problems, shared)


def every(models: tuple[str, ...] = tuple(MODELS), problems: int | None = None) -> list[Case]:
    """All comparisons: each model by cosine; on ConvBig each likelihood, and 64 problems of one observation."""
    made = [case(name) for name in models]
    if "convbig" in models:
        made += [case("convbig", shared=True)]
        made += [case("convbig", kind) for kind in KINDS if kind != "cosine"]
    return made if problems is None else [replace(one, problems=problems) for one in made]


@dataclass(frozen=True)
class Setting:
    """A case made concrete: the client's network, the task, and what was observed."""

    case: Case
    net: nn.Module
    task: lg.Task
    observations: list[lg.Observation]
    labels: torch.Tensor

    @classmethod
    def of(cls, case: Case, seed: int = 0) -> Setting:
        """Records are random images: what a step costs does not depend on what they show."""
        domain = lg.Domain("image", case.model.shape, 10)
        model = case.model
        clients = (1 if case.shared else case.problems) * model.batch
        generator = torch.Generator().manual_seed(seed)
        records = lg.Records(
            torch.rand(clients, *domain.shape, generator=generator),
            torch.randint(domain.classes, (clients,), generator=generator),
            domain,
        )
        kind = KINDS[case.kind]
        net = model.network(domain, seed)
        recipe = lg.Recipe(batch=model.batch, mode="train" if model.statistics else "eval")
        task = lg.Task(net, domain, recipe).protect(kind.protection)
        seen = lg.observe(task, records, threat=lg.Threat(grants=kind.grants), seed=seed)
        return cls(case, net, task, seen, records.labels)
