"""Figure 7 and A.7: averaging over k points of the δ-ball, the centre alone, and Langevin noise.

The paper's Algorithm 1 averages the objective over k points drawn in the ball of radius δ = 9 (in normalised space);
its experiments, and the released code, take the centre alone. In 784 dimensions nearly every point of the ball is at
its surface.
"""

from __future__ import annotations

from typing import Any

from leakgauge import data
from leakgauge.adversary import Adversary, adam, ball, density
from leakgauge.observation import observe
from leakgauge.papers.bayes.tuned import constants, task_at
from leakgauge.papers.contract import Cell, Figure, Measured, Size, Table, at_least, difference
from leakgauge.papers.conventions import normalised, unclipped_psnr
from leakgauge.papers.sources import BAYES
from leakgauge.priors import tv

POINTS, DELTA = (1, 2, 4, 8), 9.0


def measure(
    arm: str,
    points: int = 0,
    langevin: float = 0.0,
    iterations: tuple[int, ...] = (50, 100, 200),
    name: str = "mnist",
    records: int = 10,
    model: str = "bayes_cnn",
    seed: int = 0,
) -> Measured:
    """PSNR of one arm after each number of iterations; ``points=0`` is the centre. Gaussian noise 0.1, step 0."""
    task, (mean, std) = task_at(name, "gaussian", 0, seed, model), constants(name)
    private = normalised(data.load(name).sample(records, seed=seed, split="test"), mean, std)
    observations, samples, curve = observe(task, private, seed=seed + 1), {}, []
    for steps in iterations:
        adversary = Adversary(
            likelihood=density(),
            prior=1.0 * tv(kind="quadratic", periodic=True, reduce="sum"),
            solver=adam(lr=0.1, steps=steps, box=False, langevin=langevin),
            ball=ball(points=points, delta=DELTA) if points else None,
        )
        scores = unclipped_psnr(adversary(task, observations, seed=seed).inputs[:, 0], private.inputs, std)
        samples[f"{arm}, {steps} iterations"] = scores.tolist()
        curve.append((float(steps), float(scores.mean())))
    return Measured(samples, curves={arm: curve})


def _arms(**how: Any) -> dict[str, dict[str, Any]]:
    ball_arms = {f"k = {k}": {"arm": f"k = {k}", "points": k, **how} for k in POINTS}
    return {**ball_arms, "centre": {"arm": "centre", **how}}


NOISES = {f"Langevin, T = {t:g}": {"arm": f"Langevin, T = {t:g}", "langevin": t} for t in (1e-4, 1e-2)}
BRIEF: dict[str, Any] = {"iterations": (40,), "name": "fashion_mnist_sample", "records": 2, "model": "cnn_13700"}
FEWER = ("Fashion-MNIST, 2 images", "13,700 parameters", "40 iterations")
LATE = "200 iterations"
TABLES = (
    Table(
        "bayes/figure-7",
        "Figure 7: k Monte-Carlo points of the δ-ball, δ = 9",
        BAYES,
        (
            *(Cell(f"{arm}, {n} iterations", None, "dB") for arm in _arms() for n in (50, 100, 200)),
            Cell(
                "k = 8 above k = 1, 100 iterations",
                at_least(0),
                "dB",
                difference("k = 8, 100 iterations", "k = 1, 100 iterations"),
            ),
            Cell(
                "k = 8 above k = 1, 40 iterations",
                at_least(0),
                "dB",
                difference("k = 8, 40 iterations", "k = 1, 40 iterations"),
                True,
                True,
            ),
        ),
        {
            "smoke": Size({k: {**v, **BRIEF} for k, v in _arms().items() if k in ("k = 1", "k = 8")}, FEWER),
            "small": Size(_arms(), ("10 images instead of 100", "k up to 8")),
            "full": Size(_arms(records=100)),
        },
        measure,
        "More points, faster convergence. Curves in the paper, without numbers.",
        figures=(Figure("iterations", "PSNR (dB)"),),
    ),
    Table(
        "bayes/a-7",
        "A.7: the δ-ball beside Langevin updates",
        BAYES,
        (
            *(Cell(f"{arm}, {LATE}", None, "dB") for arm in ("k = 1", "centre", *NOISES)),
            Cell("centre above k = 1", at_least(0), "dB", difference(f"centre, {LATE}", f"k = 1, {LATE}")),
            Cell(
                "centre above k = 1, 40 iterations",
                at_least(0),
                "dB",
                difference("centre, 40 iterations", "k = 1, 40 iterations"),
                True,
                True,
            ),
        ),
        {
            "smoke": Size({k: {**v, **BRIEF} for k, v in _arms().items() if k in ("k = 1", "centre")}, FEWER),
            "small": Size({**{k: v for k, v in _arms().items() if k in ("k = 1", "centre")}, **NOISES}, ("10 images",)),
            "full": Size(
                {"centre": {"arm": "centre", "records": 100}, **{k: {**v, "records": 100} for k, v in NOISES.items()}}
            ),
        },
        measure,
        "The paper compares the two in words: both add noise to the optimisation. The released code takes the centre.",
        figures=(Figure("iterations", "PSNR (dB)"),),
    ),
)
