"""Theorems III.1 and IV.1: closed forms of the Bayes capacity against integration of its definition.

Capacity is ``∫ sup_x p(y | x) dy``. For Gaussian noise on the ball of radius R the supremum depends on ``‖y‖`` alone,
hence one radial integral. **Erratum**: the printed Theorem III.1 has 2/… before its sum where the proof's integral
carries a factor 1/2; at R = 0, where nothing is told apart, it gives 2 instead of 1.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate, special, stats

from leakgauge.bounds import log_capacity_gaussian, log_capacity_vmf
from leakgauge.papers.contract import SCALES, Cell, Size, Table, near
from leakgauge.papers.sources import CAPACITY

GAUSSIAN = ((1, 0.0, 1.0), (1, 1.0, 1.0), (2, 1.0, 0.5), (3, 2.0, 1.0), (10, 1.0, 0.7))
VMF = ((3, 0.5), (3, 20.0), (10, 5.0), (50, 100.0))
EXACT = 1e-6
"""Relative; the integrals are asked for 1e-9."""
ERRATUM = "the printed theorem doubles its first term: its coefficient must be 1/(Γ(p/2) 2^(p/2) σ^p), not 2/(…)"


def gaussian_integral(p: int, radius: float, sigma: float) -> float:
    """``∫ sup_{‖x‖ ≤ R} N(y; x, σ²) dy``: inside the ball the peak, outside the density at distance ``r − R``."""
    log_peak = -p / 2 * math.log(2 * math.pi * sigma**2)
    log_area = math.log(2) + p / 2 * math.log(math.pi) - special.gammaln(p / 2)

    def shell(r: float) -> float:
        return math.exp(log_area + log_peak + (p - 1) * math.log(r) - ((r - radius) / sigma) ** 2 / 2)

    inside = math.exp(log_area + log_peak) * radius**p / p
    outside, _ = integrate.quad(shell, max(radius, 1e-300), radius + 40 * sigma, epsrel=1e-9, limit=200)
    return float(inside + outside)


def vmf_integral(p: int, kappa: float) -> float:
    """The same on the sphere: every y can be the mode, so the peak of the density times the area of the sphere."""
    mode = np.eye(p)[0]
    area = 2 * math.pi ** (p / 2) / math.gamma(p / 2)
    return float(stats.vonmises_fisher(mode, kappa).pdf(mode) * area)


def _gaussian(p: int, radius: float, sigma: float) -> str:
    return f"p = {p}, R = {radius:g}, σ = {sigma:g}"


def measure_gaussian() -> dict[str, list[float]]:
    samples = {}
    for case in GAUSSIAN:
        integral, name = gaussian_integral(*case), _gaussian(*case)
        samples[f"{name}: as printed"] = [integral]
        samples[f"{name}: corrected, over the integral"] = [math.exp(log_capacity_gaussian(*case)) / integral]
    return samples


def measure_vmf() -> dict[str, list[float]]:
    return {f"p = {p}, κ = {k:g}": [math.exp(log_capacity_vmf(p, k)) / vmf_integral(p, k)] for p, k in VMF}


def _printed(p: int, radius: float, sigma: float) -> float:
    return math.exp(log_capacity_gaussian(p, radius, sigma, as_printed=True))


TABLES = (
    Table(
        "capacity/theorem-iii-1",
        "Theorem III.1: capacity of clipped Gaussian noise, with its erratum",
        CAPACITY,
        (
            *(Cell(f"{_gaussian(*c)}: as printed", near(_printed(*c), EXACT * _printed(*c))) for c in GAUSSIAN),
            *(
                Cell(f"{_gaussian(*c)}: corrected, over the integral", near(1, EXACT, ours=True), claim=True)
                for c in GAUSSIAN
            ),
        ),
        dict.fromkeys(SCALES, Size({"all": {}})),
        measure_gaussian,
        __doc__ or "",
        {"": ERRATUM},
    ),
    Table(
        "capacity/theorem-iv-1",
        "Theorem IV.1: capacity of von Mises-Fisher noise",
        CAPACITY,
        tuple(Cell(f"p = {p}, κ = {k:g}", near(1, EXACT, ours=True), claim=True) for p, k in VMF),
        dict.fromkeys(SCALES, Size({"all": {}})),
        measure_vmf,
        "The theorem over the integral of the definition.",
    ),
)
