"""Victims in plain PyTorch: networks, private records, and clients that compute what they send by themselves.

Nothing here uses leakgauge, so that no fault of ours can be on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Update = dict[str, Tensor]
Change = Callable[[Update, torch.Generator], Update]
"""What a client does to its update before it is sent."""

ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
}


def dense(
    activation: str = "relu", *, inputs: int = 196, classes: int = 10, width: int = 48, seed: int = 0
) -> nn.Module:
    """Two linear layers: the first gives a single record away."""
    with _seeded(seed):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, width), ACTIVATIONS[activation](), nn.Linear(width, classes)
        )


def convolutional(activation: str = "sigmoid", *, bias: bool = True, classes: int = 10, seed: int = 0) -> nn.Module:
    """Two convolutions and a linear layer on images of 1x14x14; smooth activations are the classical easy prey."""
    with _seeded(seed):
        return nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            ACTIVATIONS[activation](),
            nn.Conv2d(8, 12, 5, stride=1, padding=2),
            ACTIVATIONS[activation](),
            nn.Flatten(),
            nn.Linear(12 * 7 * 7, classes, bias=bias),
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Weights from a seed; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def trained(model: nn.Module, inputs: Tensor, labels: Tensor, steps: int, seed: int = 0) -> nn.Module:
    """The model after some steps of Adam on batches of 32."""
    chance, optimiser = torch.Generator().manual_seed(seed), torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (32,), generator=chance)
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
        optimiser.step()
    return model


@dataclass(frozen=True)
class Sent:
    """What a client sent: its weights before, and its update as a gradient."""

    before: Update
    gradient: Update


def client(model: nn.Module, inputs: Tensor, labels: Tensor, change: Change | None = None, *, seed: int = 0) -> Sent:
    """One step of a client: the gradient of its mean loss, changed as it likes."""
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    named = dict(model.named_parameters())
    values = torch.autograd.grad(functional.cross_entropy(model(inputs), labels), list(named.values()))
    gradient = {name: value.detach() for name, value in zip(named, values, strict=True)}
    chance = torch.Generator().manual_seed(seed)
    return Sent(before, change(gradient, chance) if change else gradient)


def noise(std: float) -> Change:
    """Add Gaussian noise."""
    return lambda update, chance: {n: u + std * torch.randn(u.shape, generator=chance) for n, u in update.items()}


def nothing_of_it(update: Update, chance: torch.Generator) -> Update:
    """Noise of the update's own size in its place."""
    return {n: u.std() * torch.randn(u.shape, generator=chance) for n, u in update.items()}


def times(factor: float) -> Change:
    """A multiple of the update."""
    return lambda update, chance: {n: factor * u for n, u in update.items()}
