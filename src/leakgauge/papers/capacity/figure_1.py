"""Figures 1 and 2: the attack's error against ε and against the Bayes capacity; pictures at ε = 173.

The paper's claim of Figure 1 is drawn, not printed: capacity orders the error across mechanisms better than ε does.
Ours is a number: the rank correlation with the mean error, over the points of both mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leakgauge import data, models
from leakgauge.attacks import inverting_gradients
from leakgauge.metrics import mse
from leakgauge.observation import observe
from leakgauge.papers.capacity.points import EPSILONS, mechanism, points_of
from leakgauge.papers.capacity.rank_correlation import rank_correlations
from leakgauge.papers.contract import Cell, Figure, Measured, Samples, Size, Table, at_least, at_most, difference
from leakgauge.papers.sources import CAPACITY
from leakgauge.task import Task

SMOKE = "fashion_mnist_sample"
DIFFERENCE = "|rank correlation| of capacity less that of ε"


def measure(
    name: str, records: int = 16, tuning: int = 4, steps: int = 200, epsilons: tuple[float, ...] = EPSILONS
) -> Measured:
    """All points of a data set, in one batch: the attack is blind to the protection."""
    points = points_of(name, epsilons=epsilons, records=records, tuning=tuning, steps=steps)
    ranks = rank_correlations(points, resamples=200)
    samples = {f"{name}: {proxy}": [one.value] for proxy, one in ranks.items() if proxy != "difference"}
    samples[f"{name}: {DIFFERENCE}"] = [ranks["difference"].value]
    last = {kind: [p for p in points if p.mechanism == kind] for kind in ("gaussian", "vmf")}
    for kind, mine in last.items():
        samples[f"{name}, {kind}: error falls over the grid by"] = (mine[0].mse - mine[-1].mse).tolist()
    keys = {f"{name}, {p.mechanism}, ε = {p.epsilon:.6g}": p for p in points}
    samples |= {key: p.mse.tolist() for key, p in keys.items()}
    low, high = ranks["difference"].low, ranks["difference"].high
    return Measured(
        samples,
        {
            name: f"the difference of absolute correlations has the 95 % interval [{low:.3f}, {high:.3f}]",
            **{key: f"{p.protection}, total variation {p.tv_weight:g}" for key, p in keys.items()},
        },
        {
            f"{name}, {kind}, {axis}": [(getattr(p, axis), float(p.mse.mean())) for p in mine]
            for kind, mine in last.items()
            for axis in ("epsilon", "log_capacity")
        },
    )


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


NAMES = ("mnist", "fashion_mnist")
FEW = {"records": 2, "tuning": 1, "steps": 40, "epsilons": (1.0, 1e6)}
TABLES = (
    Table(
        "capacity/figure-1",
        "Figure 1: error against ε and against Bayes capacity",
        CAPACITY,
        tuple(
            cell
            for name in (*NAMES, SMOKE)
            for cell in (
                Cell(f"{name}: epsilon", stand_in=name == SMOKE),
                Cell(f"{name}: log capacity", stand_in=name == SMOKE),
                Cell(f"{name}: {DIFFERENCE}", None if name == SMOKE else at_least(0), stand_in=name == SMOKE),
                *(
                    Cell(f"{name}, {kind}: error falls over the grid by", at_least(0.05), "", None, True, name == SMOKE)
                    for kind in ("gaussian", "vmf")
                ),
            )
        ),
        {
            "smoke": Size({SMOKE: {"name": SMOKE, **FEW}}, ("Fashion-MNIST sample", "two ε", "2 images", "40 steps")),
            "small": Size({name: {"name": name} for name in NAMES}, ("16 images", "200 steps")),
            "full": Size({name: {"name": name, "records": 100, "steps": 4800} for name in NAMES}),
        },
        measure,
        __doc__ or "",
        {"": "with our δ and our map from ε to noise (the paper has neither) both order the error about equally well"},
        Figure("ε or log capacity", "MSE", log_x=True),
    ),
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
    ),
)
