"""Figure 2: reconstructions at ε = 173, where the Gaussian mechanism protects less than von Mises-Fisher noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leakgauge import data, models
from leakgauge.attacks import inverting_gradients
from leakgauge.metrics import mse
from leakgauge.observation import observe
from leakgauge.papers.capacity.figure_1 import NAMES, SMOKE
from leakgauge.papers.capacity.points import mechanism
from leakgauge.papers.contract import Cell, Measured, Samples, Size, Table, at_most, difference
from leakgauge.papers.sources import CAPACITY
from leakgauge.task import Task


def pictures(name: str, records: int = 8, steps: int = 300, epsilon: float = 173.0, seed: int = 0) -> Measured:
    """Both mechanisms at one ε: the error, and the reconstructions beside the originals."""
    dataset = data.load(name)
    task, private = (
        Task(models.build("cnn_13700", dataset.domain, seed=seed), dataset.domain),
        dataset.sample(records, seed=seed, split="test"),
    )
    samples, rows = {}, {f"{name}: original": private.inputs}
    for kind in ("gaussian", "vmf"):
        observations = observe(task.protect(mechanism(kind, epsilon)), private, seed=seed + 1)
        inputs = inverting_gradients(steps=steps, tv_weight=1e-2)(task, observations, seed=seed).inputs[:, 0]
        samples[f"{name}, {kind}: MSE"], rows[f"{name}, {kind}"] = mse(inputs, private.inputs).tolist(), inputs
    return Measured(samples, pictures=rows)


def _gap(name: str) -> Callable[[Samples], Sequence[float]]:
    return difference(f"{name}, gaussian: MSE", f"{name}, vmf: MSE")


TABLES = (
    Table(
        "capacity/figure-2",
        "Figure 2: reconstructions at ε = 173, Gaussian beside von Mises-Fisher",
        CAPACITY,
        tuple(
            cell
            for name in (*NAMES, SMOKE)
            for cell in (
                Cell(f"{name}, gaussian: MSE", stand_in=name == SMOKE),
                Cell(f"{name}, vmf: MSE", stand_in=name == SMOKE),
                Cell(f"{name}: Gaussian less vmf", at_most(0), "", _gap(name), True, name == SMOKE),
            )
        ),
        {
            "smoke": Size(
                {SMOKE: {"name": SMOKE, "records": 3, "steps": 40}}, ("Fashion-MNIST sample", "3 images", "40 steps")
            ),
            "small": Size({name: {"name": name} for name in NAMES}, ("8 images", "300 steps")),
            "full": Size({name: {"name": name, "records": 100, "steps": 4800} for name in NAMES}),
        },
        pictures,
        "At the same ε the Gaussian mechanism protects less.",
        {"": "depends on how ε becomes noise, which the paper does not state"},
        grid=True,
    ),
)
