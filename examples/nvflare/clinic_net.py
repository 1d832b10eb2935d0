"""The network, each site's record, and what a gate needs of them."""

import torch
from torch import Tensor, nn

import leakgauge as lg


class Net(nn.Module):
    """One hidden layer; a module of its own class, as NVFlare's recipes want it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs


def build() -> nn.Module:
    return Net()


def records_of(site: str) -> lg.Records:
    """One Fashion-MNIST image per site, from the sample that comes with leakgauge."""
    records = lg.data.load("fashion_mnist_sample").sample(16, seed=0, split="test")
    number = int("".join(filter(str.isdigit, site)) or 0) % 16
    return lg.Records(records.inputs[number, None], records.labels[number, None], records.domain)


def records(context: object) -> lg.Records:
    """This site's own records, for the gate."""
    return records_of(str(context.get_identity_name()))  # type: ignore[attr-defined]


def train(model: nn.Module, site: str, lr: float = 0.1) -> float:
    """One local step."""
    own = records_of(site)
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    loss = nn.functional.cross_entropy(model(own.inputs), own.labels)
    loss.backward()
    optimiser.step()
    return float(loss.detach())
