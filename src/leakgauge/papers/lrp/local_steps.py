"""What the paper expects but does not test: LRP over several local steps, each with a rate of its own.

The paper: guessing every step's rate would cost too much. The rates are unknowns like any other, under their law.
"""

from __future__ import annotations

from typing import Any

from leakgauge import data, models
from leakgauge.adversary import Adversary, Likelihood, l2, lbfgs, scaled_l2
from leakgauge.client import Recipe
from leakgauge.metrics import psnr
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Measured, Size, Table, at_least, difference
from leakgauge.papers.sources import LRP
from leakgauge.task import Task

ARMS: dict[str, tuple[bool, bool, Likelihood]] = {
    "known rates": (False, False, l2(relative=True)),
    "LRP, rates fitted": (True, True, scaled_l2(relative=True)),
    "LRP, nominal rate": (True, False, l2(relative=True)),
    "LRP, nominal rate, any scale": (True, False, scaled_l2(relative=True)),
}
"""Whether the client perturbs its rates, whether the adversary knows that it does, and what it matches."""


def measure(
    arm: str, steps: int = 5, images: int = 10, evaluations: int = 600, name: str = "fashion_mnist_sample"
) -> Measured:
    """PSNR of a sigmoid LeNet's weight change after several steps on one image, label known, one start."""
    sample, (perturbs, modelled, likelihood) = data.load(name), ARMS[arm]
    private = sample.sample(images, seed=0, split="test")
    recipe = Recipe(shares="change", local_steps=steps)
    plain = Task(models.build("dlg_lenet", sample.domain), sample.domain, recipe)
    perturbed = plain.protect("lrp()")
    observed = observe(perturbed if perturbs else plain, private, seed=1)
    adversary = Adversary(likelihood=likelihood, solver=lbfgs(steps=evaluations, history=100, target=1e-9))
    inputs = adversary(perturbed if modelled else plain, observed).inputs[:, 0]
    return Measured({arm: psnr(inputs, private.inputs).tolist()})


def _work(arms: tuple[str, ...] = tuple(ARMS), **how: Any) -> dict[str, dict[str, Any]]:
    return {arm: {"arm": arm, **how} for arm in arms}


GAIN = difference("LRP, rates fitted", "LRP, nominal rate")
TABLES = (
    Table(
        "lrp/local-steps",
        "What the paper leaves open: LRP over five local steps, rates fitted",
        LRP,
        (
            *(
                Cell(arm, at_least(40, ours=True) if arm in ("known rates", "LRP, rates fitted") else None, "dB")
                for arm in ARMS
            ),
            Cell("fitted above the nominal rate", at_least(10, ours=True), "dB", GAIN, claim=True),
        ),
        {
            "smoke": Size(
                _work(("LRP, rates fitted", "LRP, nominal rate"), images=1, steps=2, evaluations=120),
                ("one image, two steps", "120 evaluations"),
            ),
            "small": Size(_work(), ("10 Fashion-MNIST images",)),
            "full": Size(_work(images=100, evaluations=5000, name="mnist")),
        },
        measure,
        __doc__ or "",
        {"": "too few evaluations at this scale"},
    ),
)
