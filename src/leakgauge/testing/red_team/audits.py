"""Cases that are audited: own networks, own defenses, own records, through :class:`leakgauge.Study`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import data
from leakgauge.attacks import adaptive, inverting_gradients
from leakgauge.audit.auditing import audit
from leakgauge.client import Recipe
from leakgauge.study import Study
from leakgauge.testing.red_team import parts, victims
from leakgauge.testing.red_team.cases import Case
from leakgauge.threat import Threat

STEPS = 200


@cache
def pictures() -> tuple[Tensor, Tensor]:
    """Fashion-MNIST at 14x14."""
    sample = data.load("fashion_mnist_sample").sample(400, seed=5)
    return torch.nn.functional.avg_pool2d(sample.inputs, 2), sample.labels


@cache
def rows() -> tuple[Tensor, Tensor]:
    """Rows of twelve numbers of two kinds."""
    chance = torch.Generator().manual_seed(3)
    labels = torch.arange(400) % 2
    return torch.randn(400, 12, generator=chance) + labels.unsqueeze(1), labels


@dataclass(frozen=True)
class Audit:
    """One audit of one defense; its verdict is the answer."""

    model: Callable[[], nn.Module]
    defense: Any = "identity()"
    records: Callable[[], tuple[Tensor, Tensor]] = pictures
    training: int = 0
    updates: int = 8
    recipe: Recipe = field(default_factory=Recipe)
    threat: Threat = field(default_factory=Threat)
    task: dict[str, Any] = field(default_factory=dict)
    steps: int = STEPS

    def __call__(self) -> str:
        inputs, labels = self.records()
        half = len(inputs) // 2
        model = victims.trained(self.model(), inputs[half:], labels[half:], self.training)
        study = Study(
            model,
            (inputs[:half], labels[:half]),
            reference=(inputs[half:], labels[half:]),
            defenses={"it": self.defense},
            adversaries={"generic": inverting_gradients(steps=self.steps), "adaptive": adaptive(steps=self.steps)},
            recipe=self.recipe,
            threat=self.threat,
            updates=self.updates,
            **self.task,
        )
        return str(audit(study).verdicts["it"])


def cases() -> Iterator[Case]:
    """Planted leaks and drowned clients."""
    yield from _leaking()
    yield from _drowned()


def _leaking() -> Iterator[Case]:
    dense, smooth = victims.dense, victims.convolutional

    def tanh() -> nn.Module:
        return victims.convolutional("tanh")

    def unbiased() -> nn.Module:
        return victims.convolutional("silu", bias=False)

    def table() -> nn.Module:
        return victims.dense(inputs=12, classes=2, width=16)

    own = {
        "minus three times": parts.Times(-3.0),
        "a hundredth": parts.Times(0.01),
        "shuffled": parts.Shuffled(),
        "noise on biases": parts.NoisyBiases(),
        "without the first layer": parts.WithoutFirst(),
        "cubed": parts.Cubed(),
        "through numpy": parts.ThroughNumpy(),
        "rows mixed by numpy": parts.Mixed(),
        "offset": parts.Offset(),
        "noise in half of the releases": parts.Sometimes(),
    }
    for name, part in own.items():
        yield Case(f"cnn, own part: {name}", True, Audit(smooth, part))
    for name in ("minus three times", "shuffled", "noise on biases", "cubed", "offset"):
        yield Case(f"mlp, own part: {name}", True, Audit(dense, own[name]))
    yield from _leaking_otherwise()
    yield Case("mlp, plain", True, Audit(dense))
    yield Case("cnn, plain", True, Audit(smooth))
    yield Case("cnn of tanh, plain", True, Audit(tanh))
    yield Case("cnn, trained", True, Audit(smooth, training=60))
    yield Case("mlp, trained", True, Audit(dense, training=60))
    yield Case("no last bias, labels inferred", True, Audit(unbiased, threat=Threat(labels="inferred")))
    yield Case("cnn, labels inferred", True, Audit(smooth, threat=Threat(labels="inferred")))
    yield Case("cnn, little noise", True, Audit(smooth, "gaussian(std=1e-5)"))
    yield Case("mlp, half of the entries", True, Audit(dense, "random_prune(p=0.5)"))
    yield Case("mlp, clipped", True, Audit(dense, "clip(norm=0.5)"))
    # signs show little more than the outline of a picture, which eight records are too few to prove
    yield Case("mlp, signs after clip", True, Audit(dense, "clip(norm=0.5) | sign()", updates=16))
    yield Case("table", True, Audit(table, records=rows))
    yield Case("table, own part", True, Audit(table, parts.Times(-2.0), records=rows))
    yield Case("mlp, a batch of two", True, Audit(dense, recipe=Recipe(batch=2)))
    change = Recipe(shares="change", learning_rate=0.05)
    hidden = Threat(learning_rate="unknown")
    yield Case("cnn, change, rate hidden", True, Audit(smooth, recipe=change, threat=hidden))
    yield Case(
        "mlp, change, rate hidden, own part", True, Audit(dense, parts.Times(-3.0), recipe=change, threat=hidden)
    )


KINDS = (
    "without any bias",
    "group norm",
    "layer norm",
    "strides",
    "pooled",
    "a layer twice",
    "rescaled inside",
    "float64",
)


def _odd(kind: str) -> Callable[[], nn.Module]:
    return lambda: victims.odd(kind)


def _leaking_otherwise() -> Iterator[Case]:
    """Parts and networks that an independent reviewer came up with."""
    every_second = torch.arange(20_000) % 2.0
    own = {
        "a tenth replaced by noise": parts.Salted(),
        "three fifths replaced by noise": parts.Salted(share=0.6),
        "noise without a variance": parts.HeavyTailed(1e-5),
        "every second entry": parts.Masked(every_second),
        "half precision": parts.InHalfPrecision(),
        "eight bits": parts.EightBits(),
        "reflected": parts.Reflected(),
        "noise on the first layer": parts.NoisyLayer(0),
        "a secret sign": parts.SecretSign(),
        "secret signs": parts.SecretSigns(),
    }
    for name, part in own.items():
        yield Case(f"cnn, own part: {name}", True, Audit(victims.convolutional, part))
    for name in ("a tenth replaced by noise", "reflected", "eight bits", "secret signs"):
        yield Case(f"mlp, own part: {name}", True, Audit(victims.dense, own[name]))
    yield Case("mlp, own part: noise on the last layer", True, Audit(victims.dense, parts.NoisyLayer(-1)))
    for kind in KINDS:
        yield Case(f"network: {kind}", True, Audit(_odd(kind)))
    inferred = Threat(labels="inferred")
    yield Case("without any bias, labels inferred", True, Audit(_odd("without any bias"), threat=inferred))
    yield Case("a layer twice, little noise", True, Audit(_odd("a layer twice"), "gaussian(std=1e-5)"))
    yield Case(
        "cnn, a batch of four, labels inferred",
        True,
        Audit(smooth_wide, recipe=Recipe(batch=4), updates=6, threat=inferred),
    )


def smooth_wide() -> nn.Module:
    return victims.convolutional("tanh")


def _drowned() -> Iterator[Case]:
    dense, smooth = victims.dense, victims.convolutional
    noises = {
        "gaussian": "gaussian(std=100.0)",
        "laplace": "laplace(scale=100.0)",
        "clip and gaussian": "clip(norm=1.0) | gaussian(std=30.0)",
        "vmf": "vmf(kappa=0.001)",
        "own uniform": parts.Drowned(),
        "own noise in its place": parts.Unrelated(),
        "nothing sent": parts.Silent(),
    }
    for name, defense in noises.items():
        yield Case(f"cnn, drowned: {name}", False, Audit(smooth, defense))
        yield Case(f"trained mlp, drowned: {name}", False, Audit(dense, defense, training=60))
    inferred = Threat(labels="inferred")
    yield Case("drowned, labels inferred", False, Audit(smooth, noises["gaussian"], threat=inferred, training=60))
    for kind in ("group norm", "a layer twice", "strides"):
        drowned = Audit(_odd(kind), "gaussian(std=50.0)", threat=inferred, training=40)
        yield Case(f"drowned, network: {kind}", False, drowned)
    yield Case("cnn, drowned: noise without a variance", False, Audit(smooth, parts.HeavyTailed(1e3)))
    yield Case("mlp, drowned: all but a few replaced by noise", False, Audit(dense, parts.Salted(share=0.9999)))
    batch = Audit(smooth, "laplace(scale=20.0)", recipe=Recipe(batch=4), updates=6, threat=inferred)
    yield Case("drowned, a batch of four, labels inferred", False, batch)
    yield Case("drowned, two rounds", False, Audit(smooth, "gaussian(std=50.0)", task={"rounds": 2}))
    yield Case("drowned, twelve updates", False, Audit(smooth, noises["gaussian"], updates=12))
