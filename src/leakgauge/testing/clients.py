"""Clients for laws and tests: a linear one with a known answer, and two small networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge import data
from leakgauge.client import Recipe
from leakgauge.losses import SquaredError
from leakgauge.observation import Observation, observe
from leakgauge.task import Task
from leakgauge.types import Domain, Records, Threat


@dataclass(frozen=True)
class LinearClient:
    """A client whose update is linear in its record, so that the MAP of Gaussian noise and prior is known.

    The model is ``z = W x + b`` with W frozen, the loss ``½‖z − y‖²``, one record per client: the update is the
    gradient of b, ``u = W x + b − y``. With noise ``N(0, σ²)`` and prior ``N(m, s²)`` the posterior is Gaussian, and
    its mode solves ``(WᵀW/σ² + I/s²) x = Wᵀ(o − b + y)/σ² + m/s²``.
    """

    noise: float = 0.3
    mean: float = 0.2
    std: float = 1.5
    records: int = 3
    inputs: int = 5
    outputs: int = 7
    seed: int = 1

    def task(self) -> Task:
        generator = torch.Generator().manual_seed(self.seed)
        model = nn.Linear(self.inputs, self.outputs).double()
        # orthogonal columns of lengths 1 to 2: curvatures that a fixed learning rate serves well
        columns = torch.linalg.qr(torch.randn(self.outputs, self.inputs, generator=generator, dtype=torch.float64)).Q
        lengths = torch.linspace(1, 2, self.inputs, dtype=torch.float64)
        with torch.no_grad():
            model.weight.copy_(columns * lengths)
            model.bias.copy_(torch.randn(self.outputs, generator=generator, dtype=torch.float64))
        model.weight.requires_grad_(False)
        domain = Domain("table", (self.inputs,), self.outputs)
        return Task(model, domain, Recipe(loss=SquaredError())).protect(f"gaussian(std={self.noise})")

    def observations(self) -> list[Observation]:
        generator = torch.Generator().manual_seed(self.seed + 1)
        inputs = torch.randn(self.records, self.inputs, generator=generator, dtype=torch.float64)
        labels = torch.arange(self.records) % self.outputs
        task = self.task()
        return observe(task, Records(inputs, labels, task.domain), threat=Threat(labels="known"), seed=self.seed)

    def answer(self) -> Tensor:
        """The closed-form MAP of every observation, ``[n, 1, inputs]``."""
        task, rows = self.task(), []
        weight, bias = task.buffers["weight"], task.params["bias"]
        for observation in self.observations():
            assert observation.labels is not None  # granted above
            y = nn.functional.one_hot(observation.labels[0], self.outputs).to(weight)
            residual = observation.rounds[0].observed["bias"] - bias + y
            left = weight.T @ weight / self.noise**2 + torch.eye(self.inputs, dtype=torch.float64) / self.std**2
            rows.append(torch.linalg.solve(left, weight.T @ residual / self.noise**2 + self.mean / self.std**2))
        return torch.stack(rows).unsqueeze(1)


def small_task(*, batch: int = 1, seed: int = 1, dtype: torch.dtype = torch.float64) -> Task:
    """A small convolutional network (layers ``first``, ``middle``, ``last``) on images of 1x6x6, four classes."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = nn.Sequential()
        model.add_module("first", nn.Conv2d(1, 3, 3, stride=2, padding=1))
        model.add_module("act", nn.Sigmoid())
        model.add_module("flat", nn.Flatten())
        model.add_module("middle", nn.Linear(27, 1250))  # wide enough for the ghost path to keep it as factors
        model.add_module("curve", nn.Tanh())
        model.add_module("last", nn.Linear(1250, 4))
    return Task(model.to(dtype), Domain("image", (1, 6, 6), 4), Recipe(batch=batch))


def small_records(count: int, *, seed: int = 2) -> Records:
    """Random images for :func:`small_task`."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    return Records(torch.rand(count, 1, 6, 6, generator=generator), labels, Domain("image", (1, 6, 6), 4))


def image_task(*, recipe: Recipe | None = None, seed: int = 1) -> Task:
    """A small network without kinks (layers ``conv``, ``first``, ``last``) on the bundled images, which it leaks well.

    The convolution overlaps itself little, so that 50 steps of an attack already show an image.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = nn.Sequential()
        model.add_module("conv", nn.Conv2d(1, 8, 5, stride=3, padding=2))
        model.add_module("act", nn.Tanh())
        model.add_module("flat", nn.Flatten())
        model.add_module("first", nn.Linear(800, 32))
        model.add_module("curve", nn.Tanh())
        model.add_module("last", nn.Linear(32, 10))
    return Task(model, Domain("image", (1, 28, 28), 10), recipe or Recipe())


def image_records(count: int, *, seed: int = 3) -> Records:
    """Bundled images for :func:`image_task`."""
    return data.load("fashion_mnist_sample").sample(count, seed=seed)
