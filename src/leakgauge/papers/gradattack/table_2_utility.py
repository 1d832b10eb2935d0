"""Table 2, upper rows: test accuracy and training time under each defense."""

from __future__ import annotations

from typing import Any

import torch

from leakgauge import data, models
from leakgauge.client import Recipe
from leakgauge.papers.contract import Cell, Measured, Size, Table, at_least, difference, near
from leakgauge.papers.gradattack.attacking import DEFENSES, SAMPLE, Network
from leakgauge.papers.gradattack.network import conv_net
from leakgauge.papers.sources import GRADATTACK
from leakgauge.task import Task
from leakgauge.training import utility

ACCURACY = "93.37 93.19 93.01 90.57 89.92 88.61 83.58 92.31 90.41 90.04 88.20 91.37 86.10"
TIME = {"prune": 1.04, "MixUp": 1.06, "InstaHide": 1.06, "prune 0.9 +": 1.10}
"""By how a defense's name begins; the longest beginning counts."""


def measure(
    prefix: str,
    defense: str,
    name: str = "cifar10",
    network: Network = "small",
    steps: int = 400,
    records: int = 10_000,
    batch: int = 128,
    seed: int = 0,
) -> Measured:
    """Accuracy in percent, and the time of training beside that without a defense; rates as in the paper."""
    dataset = data.load(name)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = conv_net(dataset.domain) if network == "small" else models.build(network, dataset.domain, seed=seed)
    task = Task(model, dataset.domain, Recipe(mode="train"))
    rate = 0.02 if defense in ("prune 0.99", "prune 0.999") else 0.1
    train_set = dataset.sample(min(records, len(dataset.train)), seed=seed)
    options: dict[str, Any] = {"steps": steps, "seeds": (seed,), "batch": batch, "learning_rate": rate}
    result = utility(task, {defense: DEFENSES[defense]}, train_set, dataset.test, **options)[defense]
    accuracies = [100 * value for value in result.accuracies]
    return Measured({f"{prefix}accuracy, {defense}": accuracies, f"{prefix}time, {defense}": result.overheads})


def _work(prefix: str, defenses: tuple[str, ...], **how: Any) -> dict[str, dict[str, Any]]:
    return {f"{prefix}{d}": {"prefix": prefix, "defense": d, **how} for d in defenses}


def _time(defense: str) -> float:
    return next((ratio for start, ratio in reversed(TIME.items()) if defense.startswith(start)), 1.0)


def _cost(prefix: str, *, stand_in: bool) -> Cell:
    of = difference(f"{prefix}accuracy, none", f"{prefix}accuracy, prune 0.999")
    return Cell(f"{prefix}pruning 0.999 costs", at_least(5, ours=True), "%", of, True, stand_in)


NET, BRIEF = "ConvNet, ", "Fashion-MNIST, "
UNSTEADY = (
    "at a constant rate of 0.1 the undefended network is not steady after 400 steps (with half of the entries "
    "pruned it does better); the paper divides the rate by ten every 50 epochs, and trains pruned networks at 0.02"
)
COLUMNS = ("none", "prune 0.5", "prune 0.9", "prune 0.99", "prune 0.999", "MixUp 4")
TABLES = (
    Table(
        "gradattack/table-2-utility",
        "Table 2, upper rows: accuracy and training time under each defense",
        GRADATTACK,
        (
            *(Cell(f"accuracy, {d}", near(float(a), 1), "%") for d, a in zip(DEFENSES, ACCURACY.split(), strict=True)),
            *(Cell(f"time, {d}", near(_time(d), 0.1), "×") for d in DEFENSES),
            *(
                Cell(f"{NET}{what}, {d}", None, u, stand_in=True)
                for d in COLUMNS
                for what, u in (("accuracy", "%"), ("time", "×"))
            ),
            _cost("", stand_in=False),
            _cost(NET, stand_in=True),
            _cost(BRIEF, stand_in=True),
        ),
        {
            "smoke": Size(
                _work(BRIEF, ("none", "prune 0.999"), name=SAMPLE, steps=20, records=500, batch=32),
                ("Fashion-MNIST, 500 images", "three convolutions", "20 steps on batches of 32"),
            ),
            "small": Size(
                _work(NET, COLUMNS),
                ("three convolutions with batch norm instead of a ResNet-18", "400 steps on 10,000 images", "one seed"),
            ),
            "full": Size(
                _work("", tuple(DEFENSES), network="resnet18", steps=200 * 391, records=50_000),
                ("one seed instead of 5", "a constant rate: the paper divides it by ten every 50 epochs"),
            ),
        },
        measure,
        "Networks under InstaHide are asked about images without random signs. Twenty-two defenses on another client: "
        "row `utility` of the evidence.",
        dict.fromkeys((f"time, {d}" for d in DEFENSES), "times depend on the machine, and on what else runs on it")
        | {f"{NET}pruning 0.999 costs": UNSTEADY},
    ),
)
