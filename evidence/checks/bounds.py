"""The numbers of the bounds. What needs an attack is measured elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec

import numpy as np
import torch
from scipy import stats

from evidence import Context, Measurement, Number, above, at_most, below, check, exactly, numbers, within
from leakgauge.bounds import (
    Channel,
    epsilon_of,
    log_capacity_gaussian,
    log_capacity_laplace,
    log_capacity_layers,
    log_capacity_pruned,
    log_capacity_vmf,
    sigma_of,
)
from leakgauge.defenses.update.vmf_math import mean_resultant
from leakgauge.defenses.update.vmf_sample import sample, sample_gaps
from leakgauge.testing.references import (
    gaussian_log_capacity,
    gaussian_log_capacity_sum,
    relative_error,
    vmf_log_capacity,
    vmf_log_capacity_bessel,
)

DIMS = (1, 2, 3, 4, 5, 10, 30, 31, 90, 91, 100, 300, 1000, 3000, 13_700, 10**5, 10**6, 10**7, 10**8, 10**9)
BAR = 1e-9
BEST_OF = 20


@check("gaussian_capacity_golden", rows="gaussian-capacity")
def gaussian_capacity_golden() -> Measurement:
    """Four golden values."""
    found = {
        "R = 0": log_capacity_gaussian(100, 0.0, 1.0),
        "p = 1": math.exp(log_capacity_gaussian(1, 1.0, 1.0)),
        "p = 2": math.exp(log_capacity_gaussian(2, 1.0, 0.5)),
        "p = 13,700 (log)": log_capacity_gaussian(13_700, 1.0, 1.0),
    }
    golden = (0.0, 1.79788456080287, 5.50662827463, 116.795214658)
    bars = {name: within(1e-9 * max(1, value), value) for name, value in zip(found, golden, strict=True)}
    return Measurement(numbers(found, bars=bars), detail="golden values, to 1e-9")


@check("gaussian_capacity_grid", rows="gaussian-capacity", cost="minutes")
def gaussian_capacity_grid(context: Context) -> Measurement:
    """The largest error against mpmath: quadrature on the whole grid, and the theorem's own sum up to p = 3,000."""
    errors = []
    for dim in DIMS:
        context.say(f"p = {dim}")
        for exponent in np.linspace(-4, 4, 17):
            sigma = float(10.0**exponent)
            found = log_capacity_gaussian(dim, 1.0, sigma)
            errors.append((relative_error(found, gaussian_log_capacity(dim, 1 / sigma)), dim, sigma))
            if dim <= 3000 and float(exponent).is_integer():
                errors.append((relative_error(found, gaussian_log_capacity_sum(dim, 1 / sigma)), dim, sigma))
    return _largest(errors, "sigma/R")


@check("vmf_capacity_golden", rows="vmf-capacity")
def vmf_capacity_golden() -> Measurement:
    """The golden value at p = 3 and κ = 1."""
    found = log_capacity_vmf(3, 1.0)
    return Measurement({"log capacity": Number(found, within(1e-9, 0.838560638428804))})


@check("vmf_capacity_grid", rows="vmf-capacity", cost="minutes")
def vmf_capacity_grid(context: Context) -> Measurement:
    """The largest error against mpmath: quadrature on the whole grid, and its Bessel function for small p and κ."""
    errors = []
    for dim in DIMS:
        context.say(f"p = {dim}")
        for exponent in np.linspace(-6, 12, 37):
            kappa = float(10.0**exponent)
            found = log_capacity_vmf(dim, kappa)
            errors.append((relative_error(found, vmf_log_capacity(dim, kappa)), dim, kappa))
            if dim <= 1000 and kappa <= 1000:
                errors.append((relative_error(found, vmf_log_capacity_bessel(dim, kappa)), dim, kappa))
    return _largest(errors, "κ")


@check("capacity_speed", rows="bound-speed")
def capacity_speed() -> Measurement:
    """Milliseconds of each capacity at p = 10⁹: for each setting the best of 20 runs, and the worst setting of each."""
    p = 10**9
    cases: dict[str, list[Callable[[], float]]] = {
        "gaussian": [lambda s=s: log_capacity_gaussian(p, 1.0, s) for s in (1e-4, 1.0, 1e4)],  # type: ignore[misc]
        "vmf": [lambda k=k: log_capacity_vmf(p, k) for k in (1e-6, 1e6, 1e12)],  # type: ignore[misc]
        "laplace": [lambda a=a: log_capacity_laplace(p, a, 1.0) for a in (1.0, 1.001e9, 1e12)],  # type: ignore[misc]
        "pruned": [lambda q=q: log_capacity_pruned(p, 1.0, 0.1, q) for q in (0.01, 0.5, 0.99)],  # type: ignore[misc]
        "50 layers": [lambda: log_capacity_layers([p // 50] * 50, 1.0, 1.0).product],
    }
    return Measurement(
        numbers({n: max(1e3 * _best(f) for f in each) for n, each in cases.items()}, bars=below(5)),
        detail=f"milliseconds, best of {BEST_OF}; 50 layers are 52 capacities at once",
    )


@check("vmf_sampling_speed", rows="bound-speed")
def vmf_sampling_speed() -> Measurement:
    """One draw at p = 10⁷ over drawing 10⁷ normals, one thread, best of 5 of each, taken in turns."""
    p, generator, found = 10**7, torch.Generator().manual_seed(0), {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for dtype in (torch.float32, torch.float64):
            mean = torch.full((p,), p**-0.5, dtype=dtype)
            pairs = []
            for _ in range(5):
                start = time.perf_counter()
                torch.randn(p, generator=generator, dtype=dtype)
                middle = time.perf_counter()
                sample(mean, 1e7, generator=generator)
                pairs.append((middle - start, time.perf_counter() - middle))
            normals, draws = (min(times) for times in zip(*pairs, strict=True))
            found[str(dtype).removeprefix("torch.")] = draws / normals
    finally:
        torch.set_num_threads(threads)
    return Measurement(numbers(found, bars=at_most(5)), detail="times the price of the normals")


@check("vmf_against_scipy", rows="vmf-samplers")
def vmf_against_scipy() -> Measurement:
    """Two-sample Kolmogorov-Smirnov of the cosines, 50,000 draws each, 6 settings; the smallest p-value."""
    found = []
    for seed, (dim, kappa) in enumerate([(2, 0.5), (2, 50.0), (3, 4.0), (5, 30.0), (10, 1.0), (20, 100.0)]):
        ours = 1 - sample_gaps(dim, kappa, 50_000, np.random.default_rng(seed))
        theirs = stats.vonmises_fisher(np.eye(dim)[0], kappa).rvs(50_000, random_state=100 + seed)[:, 0]
        found.append(float(stats.ks_2samp(ours, theirs).pvalue))
    return Measurement(
        {"least p-value": Number(min(found), above(0.01 / len(found)))}, detail="level 1 % over 6 settings"
    )


@check("vmf_mean_length", rows="vmf-samplers")
def vmf_mean_length() -> Measurement:
    """Mean cosine of 100,000 draws at p = 13,700 against the Bessel ratio, in standard errors; the largest of 5 κ."""
    worst = 0.0
    for kappa in (1.0, 100.0, 7000.0, 1e5, 1e7):
        gaps = sample_gaps(13_700, kappa, 100_000, np.random.default_rng(0))
        error = gaps.std() / math.sqrt(len(gaps))
        worst = max(worst, float(abs(gaps.mean() - (1 - mean_resultant(13_700, kappa))) / error))
    return Measurement({"largest deviation": Number(worst, below(3.5))}, detail="standard errors, 5 concentrations")


@check("capacity_laws", rows="bound-laws")
def capacity_laws() -> Measurement:
    """Violations in 5,000 random cases (beside Hypothesis in tests/bounds): bounds, monotony, products, processing."""
    rng = np.random.default_rng(0)
    violations = 0
    for _ in range(5000):
        dim = int(10 ** rng.uniform(0, 9))
        ratio, kappa, more = 10 ** rng.uniform(-4, 4), 10 ** rng.uniform(-6, 12), rng.uniform(1.01, 3)
        gaussian, vmf = log_capacity_gaussian(dim, ratio, 1.0), log_capacity_vmf(dim + 1, kappa)
        layers = [int(d) for d in rng.integers(1, 1000, size=3)]
        product = log_capacity_layers(layers, ratio, 1.0)
        channel = Channel(rng.dirichlet(np.full(4, 0.5), size=5))
        after, before = Channel(rng.dirichlet(np.ones(3), size=4)), Channel(rng.dirichlet(np.ones(5), size=6))
        laws = (
            gaussian >= 0 and vmf >= 0,
            log_capacity_gaussian(dim, ratio * more, 1.0) > gaussian > log_capacity_gaussian(dim, ratio, more),
            log_capacity_gaussian(2 * dim, ratio, 1.0) > gaussian,
            log_capacity_vmf(dim + 1, kappa * more) > vmf and log_capacity_vmf(2 * dim + 2, kappa) > vmf,
            math.isclose(product.product, sum(log_capacity_gaussian(d, ratio, 1.0) for d in layers)),
            product.product <= product.sqrt_ball * (1 + 1e-12) <= product.sum_ball * (1 + 2e-12),
            channel.then(after).capacity <= channel.capacity + 1e-12,
            before.then(channel).capacity <= channel.capacity + 1e-12,
            math.isclose(channel.times(after).capacity, channel.capacity * after.capacity, rel_tol=1e-12),
        )
        violations += laws.count(False)
    return Measurement({"violations": Number(violations, exactly(0))}, detail="5,000 cases of 9 laws")


@check("epsilon_round_trip", rows="bound-laws", cost="minutes")
def epsilon_round_trip() -> Measurement:
    """Largest relative error of σ → ε → σ: 500 exact cases, and, with leakgauge[dp], two each of RDP and PLD."""
    rng = np.random.default_rng(0)
    worst: dict[str, float | str] = {"exact": 0.0}
    cases = [("exact", float(10 ** rng.uniform(-1, 2)), 1.0, int(rng.integers(1, 10**4))) for _ in range(500)]
    if find_spec("dp_accounting"):
        cases += [(m, s, 0.02, 300) for m in ("rdp", "pld") for s in (0.7, 1.3)]
    else:
        worst |= {"rdp": "not installed", "pld": "not installed"}
    for method, sigma, rate, steps in cases:
        options = {"delta": 1e-5, "rate": rate, "steps": steps, "method": method}
        there = epsilon_of(sigma, **options)  # type: ignore[arg-type]
        if there.epsilon > 1e-9:
            back = sigma_of(there.epsilon, **options)  # type: ignore[arg-type]
            worst[method] = max(float(worst.get(method, 0.0)), abs(back.sigma / sigma - 1))
    return Measurement(numbers(worst, bars=at_most(1e-6)), detail="relative error of σ, δ = 1e-5")


def _largest(errors: Iterable[tuple[float, int, float]], parameter: str) -> Measurement:
    listed = list(errors)
    worst, dim, at = max(listed)
    detail = f"largest of {len(listed)} errors on the log, at p = {dim}, {parameter} = {at:.3g}"
    return Measurement({"largest error": Number(worst, at_most(BAR))}, detail=detail)


def _best(function: Callable[[], float]) -> float:
    times = []
    for _ in range(BEST_OF):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
