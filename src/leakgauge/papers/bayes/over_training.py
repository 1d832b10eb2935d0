"""Soteria, ATS and PRECODE over the first steps of training: what Figures 2, 3, 5 and 6 measure.

The released code trains "the first k steps" at rate 1e-4, since its milestones lie at epoch 0, not at 0.1 as stated:
its networks are nearly untrained, which flatters the claim that leakage is largest early. Both rates are here. PSNR is
clipped; under ATS it is against the transformed image, as in the paper and its code, and beside it against the record.
"""

from __future__ import annotations

from typing import Any

import leakgauge.attacks  # noqa: F401 - an engine may import this module alone; registers the attacks
from leakgauge import data, expr, models
from leakgauge.metrics import psnr
from leakgauge.observation import encoded, observe
from leakgauge.papers.contract import Measured
from leakgauge.task import Task
from leakgauge.training import train

SAMPLE, RATES = "fashion_mnist_sample", {"released": 1e-4, "stated": 0.1}
RECORD = ", against the record"
DEFENSES = {
    "Soteria": "soteria(layer='linear1')",
    "Soteria, second layer": "soteria(layer='linear2')",
    "ATS": "ats(policy='7-4-15')",
    "PRECODE": "precode(k=256)",
}


def measure(
    cell: str,
    defense: str,
    attack: str,
    step: int = 0,
    rate: str = "stated",
    name: str = SAMPLE,
    model: str = "bayes_cnn",
    records: int = 5,
    seed: int = 5,
) -> Measured:
    """One defense after some steps of training with it (without it for Soteria, which is slow), one attack."""
    dataset = data.load(name)
    task = Task(models.build(model, dataset.domain), dataset.domain).protect(DEFENSES[defense])
    private = dataset.sample(records, seed=seed, split="test")
    if step:
        trained = task.protect("identity()") if defense.startswith("Soteria") else task
        options: dict[str, Any] = {"batch": 32, "learning_rate": RATES[rate], "nesterov": True, "keep": ()}
        task = task.at(train(trained, dataset.train, steps=step, **options)[-1].state)
    adversary: Any = expr.parse(attack, "attack", where=cell)
    inputs = adversary(task, observe(task, private, seed=1)).inputs[:, 0]
    truth = encoded(task, private, seed=1).inputs if defense == "ATS" else private.inputs
    scores = psnr(inputs, truth)
    samples = {cell: scores.tolist()}
    pictures = {"original": private.inputs, cell: inputs}
    if defense == "ATS":
        samples[f"{cell}{RECORD}"] = psnr(inputs, private.inputs).tolist()
        pictures["transformed"] = truth
    curve = cell.partition(", step")[0]
    return Measured(samples, curves={curve: [(float(step), float(scores.mean()))]}, pictures=pictures)


def unit(cell: str, defense: str, attack: str, **how: Any) -> dict[str, dict[str, Any]]:
    return {cell: {"cell": cell, "defense": defense, "attack": attack, **how}}
