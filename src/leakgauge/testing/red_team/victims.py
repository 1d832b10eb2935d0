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


class Twice(nn.Module):
    """A layer that is used twice: its gradient holds the record and what the layer made of it."""

    def __init__(self, inputs: int = 196, classes: int = 10) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, inputs)
        self.outer = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        once = torch.tanh(self.inner(x.flatten(1)))
        scores: Tensor = self.outer(torch.tanh(self.inner(once)))
        return scores


class Rescaled(nn.Module):
    """Pictures are moved to [−1, 1] and turned upside down before the first layer sees them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(2 * x.flip(2) - 1)
        return scores


def odd(kind: str, *, seed: int = 3) -> nn.Module:
    """Networks of other kinds: norms, strides, no biases, a layer twice, a layer that is not trained, float64."""
    with _seeded(seed):
        dense = nn.Sequential(nn.Flatten(), nn.Linear(196, 40), nn.Tanh(), nn.Linear(40, 10))
        if kind == "frozen":
            dense[1].requires_grad_(False)
        networks: dict[str, Callable[[], nn.Module]] = {
            "without any bias": lambda: nn.Sequential(
                nn.Flatten(), nn.Linear(196, 64, bias=False), nn.Tanh(), nn.Linear(64, 10, bias=False)
            ),
            "group norm": lambda: nn.Sequential(
                nn.Conv2d(1, 8, 5, stride=2, padding=2),
                nn.GroupNorm(2, 8),
                nn.SiLU(),
                nn.Flatten(),
                nn.Linear(392, 10),
            ),
            "layer norm": lambda: nn.Sequential(
                nn.Flatten(), nn.LayerNorm(196), nn.Linear(196, 40), nn.GELU(), nn.Linear(40, 10)
            ),
            "strides": lambda: nn.Sequential(
                nn.Conv2d(1, 8, 3, stride=2, padding=1),
                nn.LeakyReLU(0.2),
                nn.Conv2d(8, 8, 3, stride=2, padding=1),
                nn.ELU(),
                nn.Flatten(),
                nn.Linear(128, 10),
            ),
            "pooled": lambda: nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1, bias=False),
                nn.Hardswish(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(392, 10, bias=False),
            ),
            "a layer twice": Twice,
            "rescaled inside": lambda: Rescaled(dense),
            "frozen": lambda: dense,
            "float64": dense.double,
        }
        return networks[kind]()


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
