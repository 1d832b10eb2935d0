"""Small networks of every sort that the paths must serve, and the oracle that they must equal."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from leakgauge.client import Recipe
from leakgauge.task import Task
from leakgauge.types import Domain

IMAGES = Domain("image", (1, 8, 8), 5)


class Residual(nn.Module):
    """A skip connection and a layer that is named by nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Sigmoid())
        self.head = nn.Linear(4 * 64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        out: Tensor = self.head((x + self.block(x)).flatten(1))
        return out


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.outer = nn.Linear(64, 64)
        self.outer.weight = self.inner.weight
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.outer(torch.sigmoid(self.inner(x.flatten(1))))))
        return out


class Twice(nn.Module):
    """One layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.layer(torch.sigmoid(self.layer(x.flatten(1))))))
        return out


class InPlace(nn.Module):
    """A functional in-place ReLU: it overwrites the output of a layer that a hook has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Linear(4 * 64, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(nn.functional.relu(self.conv(x), inplace=True).flatten(1))
        return out


class Functional(nn.Module):
    """A parameter that is used without calling its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(torch.sigmoid(self.layer(x.flatten(1))), self.head.weight, self.head.bias)


class Keyword(nn.Module):
    """A layer called by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(input=x.flatten(1))
        return out


class Unused(nn.Module):
    """A layer that no record reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 5)
        self.spare = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out


class Centre(nn.Module):
    """Takes the mean over the batch away: examples of one client see each other, clients must not."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Scale(nn.Module):
    """A layer of the user's own with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x


def _head(features: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, 5)]


FITTING: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(*_head(64)),
    "wide": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 700), nn.Tanh(), nn.Linear(700, 5)),
    "no bias": lambda: nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.Sigmoid(), nn.Flatten(), nn.Linear(108, 5)),
    "stride": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=2), nn.Sigmoid(), *_head(100)),
    "dilation": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, dilation=2, padding=1), nn.Sigmoid(), *_head(144)),
    "odd kernel": lambda: nn.Sequential(nn.Conv2d(1, 4, (2, 3), stride=(1, 2)), nn.Sigmoid(), *_head(84)),
    "many channels": lambda: nn.Sequential(
        nn.Conv2d(1, 40, 3, padding=1), nn.Sigmoid(), nn.AvgPool2d(4), nn.Conv2d(40, 100, 3, padding=1), *_head(400)
    ),
    "residual": Residual,
    "batch norm, eval": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Sigmoid(), *_head(144)),
    "batch norm 1d, eval": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.Tanh(), nn.Linear(20, 5)
    ),
    "group norm": lambda: nn.Sequential(nn.Conv2d(1, 6, 3), nn.GroupNorm(3, 6), nn.Sigmoid(), *_head(216)),
    "layer norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.LayerNorm(20), nn.Tanh(), nn.Linear(20, 5)),
    "layer norm of images": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.LayerNorm([6, 6]), nn.Sigmoid(), nn.LayerNorm([3, 6, 6], bias=False), *_head(108)
    ),
    "tokens": lambda: nn.Sequential(nn.Unflatten(1, (1, 1)), nn.Flatten(1, 3), nn.Linear(8, 12), nn.Tanh(), *_head(96)),
    "in-place module": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), *_head(144)),
}
"""Networks that the ghost path serves."""

FALLING: dict[str, Callable[[], nn.Module]] = {
    "tied weights": Tied,
    "a layer twice": Twice,
    "functional in-place": InPlace,
    "functional layer": Functional,
    "keyword": Keyword,
    "unused layer": Unused,
    "coupled examples": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 20), Centre(), nn.Tanh(), nn.Linear(20, 5)),
    "own layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 20), Scale(), nn.Tanh(), nn.Linear(20, 5)),
    "grouped": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Sigmoid(), *_head(64)),
    "reflected": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.Sigmoid(), *_head(256)
    ),
    "same padding": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.Sigmoid(), *_head(256)),
}
"""Networks that it does not serve: another path must."""


def task_of(make: Callable[[], nn.Module], *, dtype: torch.dtype = torch.float64, recipe: Recipe | None = None) -> Task:
    """A task on 1x8x8 images with weights that depend on nothing but the network."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        model = make()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                module.running_mean.normal_()
                assert module.running_var is not None
                module.running_var.uniform_(0.5, 2.0)
            if isinstance(module, nn.GroupNorm | nn.LayerNorm | nn.modules.batchnorm._BatchNorm):
                nn.init.normal_(module.weight)
    return Task(model.to(dtype), IMAGES, recipe or Recipe())


def eager_updates(task: Task, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The oracle: every candidate's update by ``autograd.grad(create_graph=True)`` on a module of its own.

    Written without the client: an ordinary forward pass of a fresh copy, an ordinary loss.
    """
    rows = []
    for x, y in zip(inputs, labels, strict=True):
        params = [p for p in task.working.parameters() if p.requires_grad]
        names = [name for name, p in task.working.named_parameters() if p.requires_grad]
        outputs = task.working(x)
        if y.dim() == 1:
            losses = nn.functional.cross_entropy(outputs, y, reduction="none")
        else:
            losses = -(y * outputs.log_softmax(-1)).sum(-1)
        loss = losses.mean() if task.recipe.reduction == "mean" else losses.sum()
        made = torch.autograd.grad(loss, params, create_graph=True, allow_unused=True)
        rows.append({n: torch.zeros_like(p) if g is None else g for n, p, g in zip(names, params, made, strict=True)})
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
