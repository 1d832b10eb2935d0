"""Table 1: test accuracy of two clients with disjoint labels, nine pairs of rates, with and without perturbation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from statistics import mean
from typing import Any

from leakgauge.papers.contract import Cell, Samples, Size, Table, at_least, at_most, difference, near
from leakgauge.papers.lrp.two_clients import SEEDS, Setting, accuracies
from leakgauge.papers.sources import LRP

RATES = (0.005, 0.01, 0.02)
PAIRS = list(product(RATES, RATES))
NETWORKS = {"logistic": "logistic", "mlp": "mlp(width=200, depth=1)", "cnn": "lenet5"}
PRINTED = {
    ("logistic", False): "86.84 87.14 87.24 86.26 86.78 86.88 85.48 86.29 86.46",
    ("logistic", True): "86.84 87.14 87.22 86.21 86.78 86.83 85.35 86.14 86.46",
    ("mlp", False): "87.18 88.59 89.18 86.35 88.16 89.02 85.46 87.67 88.63",
    ("mlp", True): "87.22 88.62 89.18 86.44 88.08 88.84 85.50 87.61 88.50",
    ("cnn", False): "87.97 92.00 94.39 86.91 91.32 93.95 85.53 90.34 93.59",
    ("cnn", True): "88.36 92.10 94.21 87.07 91.55 93.96 85.97 90.98 93.56",
}
"""In percent, in the order of ``PAIRS``."""
TOLERANCE = 2.0


def _name(network: str, pair: tuple[float, float], perturbed: bool) -> str:
    return f"{network}, {pair[0]}, {pair[1]}{', perturbed' if perturbed else ''}"


def measure(network: str, pairs: Sequence[Sequence[float]] = tuple(PAIRS), **how: Any) -> dict[str, list[float]]:
    """Accuracies in percent by seed, all settings of a seed trained in lockstep."""
    settings: list[Setting] = [(a, b, perturbed) for perturbed in (False, True) for a, b in pairs]
    scores = accuracies(NETWORKS[network], settings, **how)
    return {
        _name(network, setting[:2], setting[2]): [100 * score for score in some]
        for setting, some in zip(settings, scores, strict=True)
    }


def _rank(network: str, pair: tuple[float, float]) -> Callable[[Samples], Sequence[float]]:
    """The place of a pair among those measured without perturbation; 1 is the best."""

    def place(samples: Samples) -> Sequence[float]:
        means = [mean(samples[_name(network, p, False)]) for p in PAIRS]
        return [1.0 + sum(m > means[PAIRS.index(pair)] for m in means)]

    return place


def _change(network: str, pairs: Sequence[tuple[float, float]] = PAIRS) -> Callable[[Samples], Sequence[float]]:
    """The largest change of a mean by perturbation."""
    return lambda s: [max(abs(mean(s[_name(network, p, True)]) - mean(s[_name(network, p, False)])) for p in pairs)]


def _cells(network: str) -> list[Cell]:
    printed = [
        Cell(_name(network, pair, perturbed), near(float(value), TOLERANCE), "%")
        for perturbed in (False, True)
        for pair, value in zip(PAIRS, PRINTED[network, perturbed].split(), strict=True)
    ]
    best = Cell(f"{network}: rank of 0.005, 0.02", near(1, 0), "", _rank(network, (0.005, 0.02)))
    worst = Cell(f"{network}: rank of 0.02, 0.005", near(9, 0), "", _rank(network, (0.02, 0.005)))
    return [
        *printed,
        best,
        worst,
        Cell(f"{network}: perturbation changes a mean by", at_most(0.5), "%", _change(network)),
    ]


BY_RATE = {rate: tuple(pair for pair in PAIRS if pair[0] == rate) for rate in RATES}
WORK: dict[str, dict[str, Any]] = {
    "logistic": {"network": "logistic"},
    "mlp": {"network": "mlp"},
    **{
        f"cnn, seed {seed}, {rate}": {"network": "cnn", "seeds": (seed,), "pairs": BY_RATE[rate]}
        for seed, rate in product(SEEDS, RATES)
    },
}
"""The CNN takes half an hour, so that its seeds and the rates of its first client are units of their own."""
ENDS = ((0.005, 0.02), (0.02, 0.005))
BRIEF = {"name": "fashion_mnist_sample", "rounds": 6, "steps": 8, "size": 16, "seeds": SEEDS[:1], "shard": 20}
TABLES = (
    Table(
        "lrp/table-1",
        "Table 1: accuracy by the rates of two clients, perturbed or not",
        LRP,
        (
            *(cell for network in NETWORKS for cell in _cells(network)),
            Cell(
                "best pair above the worst",
                at_least(1, ours=True),
                "%",
                difference(*(_name("logistic", p, False) for p in ENDS)),
                True,
            ),
        ),
        {
            "smoke": Size(
                {"logistic": {"network": "logistic", "pairs": ENDS, **BRIEF}},
                ("Fashion-MNIST, 20 records a shard", "6 rounds of 8 steps", "two pairs", "one seed"),
            ),
            "small": Size({"logistic": {"network": "logistic"}}, ("logistic regression alone",)),
            "full": Size(WORK),
        },
        measure,
        "Two clients of 800 MNIST images, 100 rounds. The paper names neither its steps and batches (ours: 50 of 32) "
        "nor its widths.",
        {"": "the paper states neither local steps nor batches nor widths; ours are 50, 32 and as listed"},
    ),
)
