"""Cases that are captured: a client in plain PyTorch computed the update, and ``inspect`` is asked about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from leakgauge.attacks import adaptive
from leakgauge.defenses import protection
from leakgauge.inspect import captured, inspect
from leakgauge.storage.states import State
from leakgauge.testing.red_team import victims
from leakgauge.testing.red_team.audits import STEPS, pictures
from leakgauge.testing.red_team.cases import Case
from leakgauge.types import Domain


@dataclass(frozen=True)
class Captured:
    """One update of a batch of pictures, sent as it is or changed."""

    model: Callable[[], nn.Module]
    change: victims.Change | None = None
    batch: int = 1
    record: int = 0
    training: int = 0

    def __call__(self) -> str:
        inputs, labels = pictures()
        model = victims.trained(self.model(), inputs[200:], labels[200:], self.training)
        own = slice(self.record, self.record + self.batch)
        sent = victims.client(model, inputs[own], labels[own], self.change, seed=self.record)
        domain = Domain("image", (1, 14, 14), 10)
        here = Path("client.safetensors")
        capture = captured(State(sent.before, here), State(sent.gradient, here), model, kind="gradient")
        (finding,) = inspect(model, domain, [capture], batch=self.batch)
        return "above noise" if finding.above_noise else "no better than noise"


@dataclass(frozen=True)
class Rounds:
    """Two rounds of one client that scales its gradient at random and adds noise, from seeds anew or from one seed."""

    std: float
    seeds: tuple[int, int]
    model: Callable[[], nn.Module] = victims.convolutional
    defense: str = "lrp() | gaussian(std={std})"

    def __call__(self) -> str:
        inputs, labels = (tensor[:1] for tensor in pictures())
        model, captures = self.model(), []
        for number, seed in enumerate(self.seeds):
            sent = victims.client(model, inputs, labels)
            chance = torch.Generator().manual_seed(seed)
            scale = 2 * torch.rand(1, generator=chance)
            noisy = {n: scale * g + self.std * torch.randn(g.shape, generator=chance) for n, g in sent.gradient.items()}
            path = Path(f"r{number}-client3.safetensors")
            captures.append(captured(State(sent.before, path), State(noisy, path), model, kind="gradient"))
            with torch.no_grad():
                for name, value in model.named_parameters():
                    value.sub_(0.1 * sent.gradient[name])
        findings = inspect(
            model,
            Domain("image", (1, 14, 14), 10),
            captures,
            labels=labels,
            attacks=[adaptive(steps=STEPS)],
            defense=protection(self.defense.format(std=self.std)),
        )
        return "above noise" if any(finding.above_noise for finding in findings) else "no better than noise"


def cases() -> Iterator[Case]:
    """Captured updates of all signs, activations and sizes, and updates that hold nothing."""
    models: dict[str, Callable[[], nn.Module]] = {
        "mlp": victims.dense,
        "mlp of tanh": lambda: victims.dense("tanh"),
        "cnn": victims.convolutional,
        "cnn of silu without a last bias": lambda: victims.convolutional("silu", bias=False),
    }
    for place, (name, model) in enumerate(models.items()):
        yield Case(f"captured, {name}", True, Captured(model, record=place))
        yield Case(f"captured, {name}, turned", True, Captured(model, victims.times(-1.0), record=place + 4))
        yield Case(f"captured, {name}, noise in its place", False, Captured(model, victims.nothing_of_it, record=place))
    yield Case("captured, cnn, some noise", True, Captured(victims.convolutional, victims.noise(1e-4)))
    yield Case("captured, mlp, a batch of three", True, Captured(victims.dense, batch=3))
    yield Case("captured, cnn, trained", True, Captured(victims.convolutional, training=60))
    yield Case("captured, cnn, rates and noise that repeat", True, Rounds(1.0, (7, 7)))
    yield Case("captured, cnn, rates and noise drawn afresh", False, Rounds(100.0, (7, 8)))
    yield Case("captured, cnn, drowned", False, Captured(victims.convolutional, victims.noise(100.0)))
