"""The MNIST section: how much must be pruned before digits cannot be read; MixUp and InstaHide beside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from leakgauge import data, models
from leakgauge.attacks import adaptive, inverting_gradients
from leakgauge.metrics import ssim
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Measured, Size, Table, at_least, at_most, difference
from leakgauge.papers.gradattack.network import FIVE, conv_net
from leakgauge.papers.sources import GRADATTACK
from leakgauge.task import Task
from leakgauge.types import Domain, Threat

RATIOS = (0.5, 0.7, 0.9, 0.95, 0.99, 0.999, 0.9999)
GENERIC, ADAPTIVE = "inverting gradients", "adaptive"
MIXED = {
    **{f"MixUp {k}": f"mixup(k={k})" for k in (4, 6)},
    **{f"InstaHide {k}": f"instahide(k={k})" for k in (4, 6)},
    "prune 0.99 + MixUp 4": "mixup(k=4) | prune(p=0.99)",
    "prune 0.99 + InstaHide 4": "instahide(k=4) | prune(p=0.99)",
}
ROUNDS = 4
"""In how many rounds the adversary sees the mixed records; the paper's sees 20."""


def measure(
    cell: str,
    defense: str,
    attack: str,
    name: str = "mnist",
    records: int = 8,
    steps: int = 300,
    rounds: int = ROUNDS,
    six_layers: bool = False,
    seed: int = 0,
) -> Measured:
    """SSIM by a generic attack or by one that knows of the defense; batch 1, labels known.

    Of mixed records the indices and coefficients are granted, as in the paper.
    """
    dataset, mixed = data.load(name), cell in MIXED
    task = Task(_network(dataset.domain, seed, six_layers), dataset.domain).protect(defense)
    private = dataset.sample(records, seed=seed, split="test")
    threat = Threat(grants=frozenset({"indices", "coefficients"} if mixed else ()))
    observed = observe(task, private, threat=threat, seed=seed, rounds=rounds if mixed else 1)
    adversary: Any = inverting_gradients(steps=steps) if attack == GENERIC else adaptive(steps=steps)
    inputs = adversary(task, observed, seed=seed).inputs[:, 0]
    return Measured({cell: ssim(inputs, private.inputs).tolist()}, pictures={"original": private.inputs, cell: inputs})


def _network(domain: Domain, seed: int, six_layers: bool) -> nn.Module:
    """The Bayes CNN; or five convolutions and a linear layer: the paper does not print its six."""
    if not six_layers:
        return models.build("bayes_cnn", domain, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return conv_net(domain, width=32, norm=False, layers=FIVE)


def _work(ratios: tuple[float, ...], attacks: tuple[str, ...], **how: Any) -> dict[str, dict[str, Any]]:
    cases = [(f"p = {p}, {a}", f"prune(p={p})", a) for p in ratios for a in attacks]
    return {cell: {"cell": cell, "defense": defense, "attack": attack, **how} for cell, defense, attack in cases}


MIXED_WORK = {name: {"cell": name, "defense": text, "attack": ADAPTIVE} for name, text in MIXED.items()}
ALL = _work(RATIOS, (GENERIC, ADAPTIVE)) | MIXED_WORK
WHOLE = {"records": 50, "steps": 10_000, "six_layers": True, "rounds": 20}
TABLES = (
    Table(
        "gradattack/mnist",
        "MNIST section: gradient pruning up to p = 0.9999, MixUp, InstaHide",
        GRADATTACK,
        (
            *(Cell(f"p = {p}, {a}") for p in RATIOS for a in (GENERIC, ADAPTIVE)),
            Cell(
                "p = 0.9 above p = 0.9999",
                at_least(0.2, ours=True),
                "",
                difference(f"p = 0.9, {GENERIC}", f"p = 0.9999, {GENERIC}"),
                True,
            ),
            Cell(
                "p = 0.9999: cannot be recognised",
                at_most(0.3, ours=True),
                "",
                lambda s: s[f"p = 0.9999, {GENERIC}"],
                True,
            ),
            Cell(
                "adaptive above generic, p = 0.99",
                at_least(0),
                "",
                difference(f"p = 0.99, {ADAPTIVE}", f"p = 0.99, {GENERIC}"),
            ),
            *(Cell(name) for name in MIXED),
            Cell("MixUp 4: still recognisable", at_least(0.3, ours=True), "", lambda s: s["MixUp 4"]),
            Cell("MixUp 4 above InstaHide 4", at_least(0), "", difference("MixUp 4", "InstaHide 4")),
            Cell(
                "prune 0.99 + InstaHide 4: almost unrecognisable",
                at_most(0.3, ours=True),
                "",
                lambda s: s["prune 0.99 + InstaHide 4"],
            ),
        ),
        {
            "smoke": Size(
                _work((0.9, 0.9999), (GENERIC,), name="fashion_mnist_sample", records=2, steps=60),
                ("Fashion-MNIST, 2 images", "two convolutions instead of six layers", "60 steps"),
            ),
            "small": Size(
                ALL,
                (
                    "8 images",
                    "two convolutions instead of six layers",
                    "300 steps",
                    f"{ROUNDS} rounds of mixed records instead of 20",
                ),
            ),
            "full": Size({cell: how | WHOLE for cell, how in ALL.items()}),
        },
        measure,
        "SSIM; the bars of 0.3 are ours. The paper shows pictures (its Figure 8) and says that "
        "p ≥ 0.9999 may be required (so it is for a generic attack), that MixUp does not suffice, that InstaHide is a "
        "bit better, and with p = 0.99 almost unrecognisable.",
        grid=True,
    ),
)
