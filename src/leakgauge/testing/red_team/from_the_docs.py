"""Cases written from the how-to pages and tutorials alone, as a new user would: half leak, half are drowned.

A drowned client sends noise some hundred times as large as its update (or nothing that depends on its record), so
that no adversary can beat a guess. A leaking one sends its update through a map that keeps what identifies a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.testing.red_team import own_parts as own
from leakgauge.testing.red_team import victims
from leakgauge.testing.red_team.audits import pictures
from leakgauge.testing.red_team.cases import Case
from leakgauge.testing.red_team.programs import Files, Spec

STEPS = 200
PRIVATE = "clip(norm=1.0) | gaussian(std=30.0)"


@cache
def people() -> lg.data.Dataset:
    """A table of numbers and a category, written as a CSV file and read back."""
    chance = torch.Generator().manual_seed(11)
    numbers = torch.randn(240, 5, generator=chance)
    jobs = ("nurse", "clerk", "pilot")
    lines = ["age,height,weight,pulse,income,job,label"]
    for place, (age, height, weight, pulse, income) in enumerate(numbers.tolist()):
        label = place % 2
        numeric = f"{40 + 9 * age + label:.2f},{170 + 8 * height:.2f},{70 + 9 * weight:.2f},{65 + 6 * pulse:.2f}"
        lines.append(f"{numeric},{30 + 7 * income:.2f},{jobs[place % 3]},{label}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_text("\n".join(lines))
        return lg.data.load(str(path))


def images() -> tuple[Tensor, Tensor]:
    """Tensors of the user's own."""
    return pictures()


def dense() -> nn.Module:
    """The network of "Audit in a notebook", for smaller pictures."""
    return victims.dense(width=32)


def wide() -> nn.Module:
    """The same with more units than a batch has records."""
    return victims.dense(width=128)


def clinic() -> nn.Module:
    """The table network of "Audit a table", on eight columns."""
    return victims.dense(inputs=8, classes=2, width=32)


def normalised() -> nn.Module:
    """A network that was trained on normalised pictures."""
    return lg.models.normalised(victims.convolutional(), [0.286], [0.353])


def smoothed(outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of "Audit your own system": one value per example."""
    return nn.functional.cross_entropy(outputs, labels, reduction="none", label_smoothing=0.1)


@dataclass(frozen=True)
class Notebook:
    """``lg.audit(lg.Study(…))`` as on "Audit in a notebook"; without a reference, as there."""

    defense: Any
    model: Callable[[], nn.Module] = dense
    records: Callable[[], Any] = images
    recipe: lg.Recipe = field(default_factory=lg.Recipe)
    threat: lg.Threat = field(default_factory=lg.Threat)
    class_counts: tuple[int, ...] | None = None
    updates: int = 8
    steps: int = STEPS

    def __call__(self) -> str:
        study = lg.Study(
            model=self.model(),
            records=self.records(),
            defenses={"it": self.defense},
            adversaries={
                "generic": lg.attacks.inverting_gradients(steps=self.steps),
                "adaptive": lg.attacks.adaptive(steps=self.steps),
            },
            recipe=self.recipe,
            threat=self.threat,
            class_counts=self.class_counts,
            updates=self.updates,
        )
        return str(lg.audit(study).verdicts["it"])


def cases() -> Iterator[Case]:
    """Own defenses, tables, batches, recipes, specs and files."""
    for name, ask in _leaking().items():
        yield Case(f"docs, {name}", True, ask)
    for name, ask in _drowned().items():
        yield Case(f"docs, drowned, {name}", False, ask)


INFERRED = lg.Threat(labels="inferred")
SKEWED = lg.Recipe(batch=3)
LOCAL = lg.Recipe(shares="change", local_steps=2, learning_rate=0.05)
SMOOTHED = lg.Recipe(loss=smoothed)


def _leaking() -> dict[str, Callable[[], str]]:
    granted = lg.Threat(grants=frozenset({"flips"}))
    return {
        "logistic noise": Notebook(own.LogisticNoise(scale=1e-4)),
        "signs flipped, hidden": Notebook("leakgauge.testing.red_team.own_parts:FlipSigns(p=0.1) | gaussian(std=1e-4)"),
        "signs flipped, granted": Notebook(own.FlipSigns(p=0.5), threat=granted),
        "hidden gain": Notebook(own.Gain()),
        "half kept, release only": Notebook(own.KeepHalf()),
        "rounded, release only": Notebook(own.Rounded(step=1e-3)),
        "jitter, release only": Notebook(own.Jitter(width=1e-4)),
        "random scale, release only": Notebook(own.RandomScale()),
        "table": Notebook("identity()", clinic, people),
        "table, rounded, release only": Notebook(own.Rounded(step=1e-4), clinic, people),
        "table, labels inferred": Notebook("identity()", clinic, people, threat=INFERRED),
        "skewed batch": Notebook("identity()", wide, recipe=SKEWED, class_counts=(2, 1), updates=6, steps=300),
        "local steps": Notebook("identity()", recipe=LOCAL),
        "own loss": Notebook("identity()", recipe=SMOOTHED),
        "normalised cnn": Notebook("identity()", normalised, steps=200),
        "spec, noisy": Spec("gaussian(std=0.001)"),
        "spec, pruned, labels inferred": Spec("random_prune(p=0.5)", labels="inferred"),
        "files": Files(),
        "files, known record": Files(record=1, known=True),
        "files, known defense": Files(victims.noise(1e-3), record=2, words=("--defense", "gaussian(std=0.001)")),
    }


def _drowned() -> dict[str, Callable[[], str]]:
    return {
        "logistic noise": Notebook(own.LogisticNoise(scale=100.0)),
        "signs flipped": Notebook("leakgauge.testing.red_team.own_parts:FlipSigns(p=0.1) | gaussian(std=100.0)"),
        "hidden gain": Notebook(own.Gain() | own.LogisticNoise(scale=100.0)),
        "half kept": Notebook(own.KeepHalf() | own.Jitter(width=1e3)),
        "jitter, release only": Notebook(own.Jitter(width=1e3)),
        "constant, release only": Notebook(own.Constant()),
        "table": Notebook(PRIVATE, clinic, people),
        "table, jitter, release only": Notebook(own.Jitter(width=1e3), clinic, people),
        "table, labels inferred": Notebook("gaussian(std=100.0)", clinic, people, threat=INFERRED),
        "skewed batch": Notebook(PRIVATE, wide, recipe=SKEWED, class_counts=(2, 1), updates=6, threat=INFERRED),
        "local steps": Notebook(PRIVATE, recipe=LOCAL),
        "own loss": Notebook(PRIVATE, recipe=SMOOTHED),
        "normalised cnn": Notebook(PRIVATE, normalised),
        "spec": Spec(PRIVATE),
        "spec, labels inferred": Spec("laplace(scale=100.0)", labels="inferred"),
        "files": Files(victims.noise(100.0)),
        "files, noise of its size": Files(victims.nothing_of_it, record=3),
        "files, known record": Files(victims.noise(100.0), record=1, known=True),
        "files, known defense": Files(victims.noise(100.0), record=2, words=("--defense", "gaussian(std=100.0)")),
        "files, a batch": Files(victims.noise(100.0), record=4, batch=2),
    }
