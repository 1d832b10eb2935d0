"""The network, and each client's record."""

import torch
from torch import Tensor, nn

import leakgauge as lg


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def records_of(client: int) -> tuple[Tensor, Tensor]:
    """One Fashion-MNIST image per client, from the sample that comes with leakgauge."""
    records = lg.data.load("fashion_mnist_sample").sample(16, seed=0, split="test")
    return records.inputs[client % 16, None], records.labels[client % 16, None]


def train(model: nn.Module, inputs: Tensor, labels: Tensor, lr: float) -> float:
    """One local step."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimiser.step()
    return float(loss.detach())
