"""The MNIST section: how much must be pruned before digits cannot be read; MixUp and InstaHide beside it."""

from __future__ import annotations

from typing import Any

from leakgauge import data, models
from leakgauge.attacks import adaptive, inverting_gradients
from leakgauge.metrics import ssim
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Measured, Size, Table, at_least, at_most, difference
from leakgauge.papers.sources import GRADATTACK
from leakgauge.task import Task

RATIOS = (0.5, 0.7, 0.9, 0.95, 0.99, 0.999, 0.9999)
GENERIC, ADAPTIVE = "inverting gradients", "adaptive"


def measure(p: float, attack: str, name: str = "mnist", records: int = 8, steps: int = 300, seed: int = 0) -> Measured:
    """SSIM under magnitude pruning by a generic attack and by one that knows of the pruning; batch 1, labels known."""
    dataset = data.load(name)
    task = Task(models.build("bayes_cnn", dataset.domain, seed=seed), dataset.domain).protect(f"prune(p={p})")
    private = dataset.sample(records, seed=seed, split="test")
    adversary: Any = inverting_gradients(steps=steps) if attack == GENERIC else adaptive(steps=steps)
    inputs = adversary(task, observe(task, private, seed=seed), seed=seed).inputs[:, 0]
    cell = f"p = {p}, {attack}"
    return Measured({cell: ssim(inputs, private.inputs).tolist()}, pictures={"original": private.inputs, cell: inputs})


def _work(ratios: tuple[float, ...], attacks: tuple[str, ...], **how: Any) -> dict[str, dict[str, Any]]:
    return {f"p = {p}, {a}": {"p": p, "attack": a, **how} for p in ratios for a in attacks}


TABLES = (
    Table(
        "gradattack/mnist",
        "MNIST section: gradient pruning up to p = 0.9999, MixUp, InstaHide",
        GRADATTACK,
        (
            *(Cell(f"p = {p}, {a}") for p in RATIOS for a in (GENERIC, ADAPTIVE)),
            Cell(
                "p = 0.9 above p = 0.9999",
                at_least(0.2),
                "",
                difference(f"p = 0.9, {GENERIC}", f"p = 0.9999, {GENERIC}"),
                True,
            ),
            Cell("p = 0.9999: cannot be recognised", at_most(0.3), "", lambda s: s[f"p = 0.9999, {GENERIC}"], True),
            Cell(
                "adaptive above generic, p = 0.99",
                at_least(0),
                "",
                difference(f"p = 0.99, {ADAPTIVE}", f"p = 0.99, {GENERIC}"),
            ),
            Cell(
                "MixUp and InstaHide",
                missing="pictures only in the paper; with CIFAR-10 they are in gradattack/table-2",
            ),
        ),
        {
            "smoke": Size(
                _work((0.9, 0.9999), (GENERIC,), name="fashion_mnist_sample", records=2, steps=60),
                ("Fashion-MNIST, 2 images", "two convolutions instead of six layers", "60 steps"),
            ),
            "small": Size(
                _work(RATIOS, (GENERIC, ADAPTIVE)), ("8 images", "two convolutions instead of six layers", "300 steps")
            ),
        },
        measure,
        "SSIM. The paper shows pictures and says that p ≥ 0.9999 may be required; so it is for a generic attack.",
        grid=True,
    ),
)
