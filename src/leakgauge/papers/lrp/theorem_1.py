"""Theorem 1: FedAvg with uniformly perturbed rates converges as 1/T on strongly convex problems.

Quadratic clients ``L_k(w) = μ_k/2 ‖w − c_k‖²`` with gradient noise: all constants of the theorem are known but G, which
is the largest mean squared gradient that a run had. ``D`` is taken as ``‖W_1 − W*‖²``: the factor before it in the
paper is not defined, and Li et al., whose proof it follows, have none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leakgauge.papers.contract import Cell, Figure, Measured, Size, Table, at_least, at_most
from leakgauge.papers.sources import LRP

Values = NDArray[np.float64]
CLIENTS, DIM, LOCAL, NOISE = 8, 6, 5, 0.5


def measure(taken: int, runs: int = 200, rounds: int = 400, seed: int = 0) -> Measured:
    """The excess loss beside the bound at every round, mean over ``runs``; ``taken`` of 8 clients in every round."""
    rng = np.random.default_rng(seed)
    curvature, centre = rng.uniform(1.0, 4.0, CLIENTS), rng.normal(size=(CLIENTS, DIM))
    optimum = (curvature[:, None] * centre).sum(0) / curvature.sum()
    least = _loss(optimum[None], curvature, centre)[0]
    mu, smooth = curvature.min(), curvature.max()
    kappa, gamma = smooth / mu, max(8 * smooth / mu, LOCAL)
    w = np.full((runs, DIM), 3.0)
    start, largest, excess = float(((w[0] - optimum) ** 2).sum()), 0.0, []
    for number in range(rounds):
        chosen = np.argsort(rng.random((runs, CLIENTS)), axis=1)[:, :taken]
        local = np.repeat(w[:, None], taken, axis=1)
        for step in range(LOCAL):
            rate = 2 / (mu * (gamma + number * LOCAL + step))
            noise = NOISE / np.sqrt(DIM) * rng.normal(size=local.shape)
            gradient = curvature[chosen][..., None] * (local - centre[chosen]) + noise
            largest = max(largest, float((gradient**2).sum(-1).mean(0).max()))
            local -= 2 * rate * rng.random((runs, taken, 1)) * gradient
        w = local.mean(1)
        excess.append(float(_loss(w, curvature, centre).mean() - least))
    heterogeneity = least  # every client's own minimum is 0
    b = (NOISE**2 + largest / 3) / CLIENTS + 6 * smooth * heterogeneity + 32 * (LOCAL - 1) ** 2 * largest
    c = (CLIENTS - taken) / (CLIENTS - 1) * 16 / taken * LOCAL**2 * largest
    times = LOCAL * np.arange(1, rounds + 1)
    bound = kappa / (gamma + times) * (2 * (b + c) / mu + mu * gamma / 2 * start)
    late = slice(rounds // 4, None)
    slope = np.polyfit(np.log(times[late]), np.log(np.maximum(excess[late], 1e-300)), 1)[0]
    name = f"{taken} of {CLIENTS} clients"
    return Measured(
        {
            f"{name}: largest excess over bound": [float((np.array(excess) / bound).max())],
            f"{name}: −slope": [-float(slope)],
        },
        curves={
            f"{name}: excess loss": list(zip(times.tolist(), excess, strict=True))[:: max(1, rounds // 100)],
            f"{name}: bound": list(zip(times.tolist(), bound.tolist(), strict=True))[:: max(1, rounds // 100)],
        },
    )


def _loss(w: Values, curvature: Values, centre: Values) -> Values:
    loss: Values = (curvature * ((w[:, None] - centre) ** 2).sum(-1) / 2).mean(1)
    return loss


TABLES = (
    Table(
        "lrp/theorem-1",
        "Theorem 1: convergence with perturbed rates, on a strongly convex problem",
        LRP,
        tuple(
            cell
            for taken in (8, 3)
            for cell in (
                Cell(f"{taken} of 8 clients: largest excess over bound", at_most(1.0), claim=True),
                Cell(f"{taken} of 8 clients: −slope", at_least(0.8, ours=True), claim=True),
            )
        ),
        {
            "smoke": Size({f"{t} of 8": {"taken": t, "runs": 50} for t in (8, 3)}, ("50 runs in the mean",)),
            "small": Size({f"{t} of 8": {"taken": t, "runs": 1000} for t in (8, 3)}),
            "full": Size({f"{t} of 8": {"taken": t, "runs": 10_000} for t in (8, 3)}),
        },
        measure,
        __doc__ or "",
        figures=(Figure("step", "excess loss", log_x=True, log_y=True),),
    ),
)
