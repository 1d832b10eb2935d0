"""Bounds beside attacks, and Figure 1 of the capacity paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from evidence import Context, Measurement, Number, at_most, check, exactly, numbers, within
from evidence.reproduced import reproduced
from leakgauge.bounds import lower_limit, success_ceiling
from leakgauge.defenses import UpdatePart, clip, gaussian, vmf
from leakgauge.metrics import clopper_pearson, mean_interval
from leakgauge.papers.capacity.figure_1 import TABLES as FIGURE_1
from leakgauge.papers.capacity.guessing import Guessing, guessing
from leakgauge.papers.capacity.points import EPSILONS, Point
from leakgauge.papers.capacity.rank_correlation import rank_correlations
from leakgauge.papers.judging import Outcome

SECRETS = 64
CONFIDENCE = 1 - 0.01 / 4
"""Of each of the four comparisons, so that a right machinery fails one of them once in a hundred times."""


def _above(parts: Sequence[UpdatePart], context: Context) -> Measurement:
    made: list[Guessing] = []
    for part in parts:
        context.say(repr(part))
        made.append(guessing(part, secrets=SECRETS))
    return Measurement(
        {f"{one.protection}: {name}": number for one in made for name, number in _judged(one).items()},
        detail="success of the exact posterior maximiser over 2,000 draws, every secret as often as the others; "
        "99.75 % interval, in which the channel's must lie (1 % in all for four settings); 64 MNIST test images of one "
        "class, mlp(width=16, depth=1), clipped to 1; channel: capacity/64 of the 64 rows, 20,000 other draws, "
        "empirical Bernstein; solver: density, the 64 records blurred by 0.1 as the prior, 5 Adam steps from each of "
        f"them, on the first {made[0].attacked} draws; the mechanism's capacity/64 is 1 wherever log capacity > log 64",
        table=[_row(one) for one in made],
    )


def _expected(one: Guessing) -> tuple[float, float, float]:
    """Capacity/64 of the channel that has the 64 secrets as rows, and its interval."""
    expected, bottom, top = (math.exp(x) / SECRETS for x in (one.channel.log, one.channel.low, one.channel.high))
    return expected, bottom, top


def _ceilings(one: Guessing) -> tuple[float, float]:
    """What no adversary exceeds: capacity/64 of the whole mechanism, and the robustness ceiling."""
    return success_ceiling(one.bound.log_capacity.value or 0.0, 1 / SECRETS), one.bound.ceiling.value or 0.0


def _judged(one: Guessing) -> dict[str, Number]:
    success, (low, high) = one.exact / one.draws, clopper_pearson(one.exact, one.draws, CONFIDENCE)
    expected, bottom, top = _expected(one)
    return {
        "success": Number(success, within(0.45, 0.5), (low, high)),
        "capacity/64 of the channel": Number(expected, within((high - low) / 2, (low + high) / 2), (bottom, top)),
        "lower limit of the success": Number(lower_limit(one.exact, one.draws), at_most(min(_ceilings(one)))),
        "exact minus solver": Number((one.exact_there - one.reached) / one.attacked, within(0.05, 0.0)),
    }


def _row(one: Guessing) -> dict[str, Any]:
    (expected, bottom, top), (whole, ceiling) = _expected(one), _ceilings(one)
    return {
        "protection": one.protection,
        "exact": round(one.exact / one.draws, 4),
        "channel capacity/64": round(expected, 4),
        "channel interval": f"{bottom:.4f} to {top:.4f}",
        "ceiling": round(ceiling, 4),
        "log capacity of the mechanism": round(one.bound.log_capacity.value or 0.0, 2),
        "capacity/64 of the mechanism": round(whole, 4),
        "solver": round(one.reached / one.attacked, 4),
        "exact, same draws": round(one.exact_there / one.attacked, 4),
    }


@check("bound_above_attack_gaussian", rows="bound-above-attack", cost="long")
def bound_above_attack_gaussian(context: Context) -> Measurement:
    """Which of 64 secrets: exact guess, 64-row channel, ceilings and solver, under clipped Gaussian noise."""
    return _above([clip(norm=1.0) | gaussian(std=s) for s in (0.25, 0.5)], context)


@check("bound_above_attack_vmf", rows="bound-above-attack", cost="long")
def bound_above_attack_vmf(context: Context) -> Measurement:
    """The same under von Mises-Fisher noise."""
    return _above([clip(norm=1.0) | vmf(kappa=k) for k in (450.0, 225.0)], context)


@check("capacity_figure_1", rows="capacity-figure-1", cost="long")
def capacity_figure_1(context: Context) -> Measurement:
    """Spearman correlation of the mean MSE of inverting gradients with ε and with log capacity, over 26 points each."""
    outcome = reproduced(FIGURE_1, "capacity/figure-1", context)
    points = {name: _points(outcome, name) for name in ("mnist", "fashion_mnist")}
    value: dict[str, float] = {}
    interval: dict[str, tuple[float, float]] = {}
    for name, mine in points.items():
        for scope, some in (("", mine), (", ε ≤ 1000", [p for p in mine if p.epsilon <= 1001])):
            for proxy, found in rank_correlations(some).items():
                key = f"{name}{scope}: {proxy}"
                value[key], interval[key] = round(found.value, 4), (round(found.low, 4), round(found.high, 4))
    table = [_point(point) for mine in points.values() for point in mine]
    return Measurement(
        numbers(value, interval)
        | {
            "points": Number(len(table), exactly(52)),
            "correlations that are not finite": Number(sum(not math.isfinite(v) for v in value.values()), exactly(0)),
        },
        detail=f"{_finding(value, interval)} Interval: 95 % bootstrap over 16 test images; difference: of absolute "
        "values, above zero where capacity is the better proxy; DP-SGD with L = 1, δ = 1e-5, one record replaced, one "
        "observation, labels known, cnn_13700 untrained; total variation chosen for every point on 4 train images",
        table=table,
    )


def _points(outcome: Outcome, name: str) -> list[Point]:
    """The points of a data set, as the table stored them."""
    points = []
    for kind in ("gaussian", "vmf"):
        capacities = [x for x, _ in outcome.curves[f"{name}, {kind}, log_capacity"]]
        for epsilon, capacity in zip(EPSILONS, capacities, strict=True):
            key = f"{name}, {kind}, ε = {epsilon:.6g}"
            points.append(
                Point(name, kind, epsilon, capacity, outcome.notes[key], 0.0, torch.tensor(outcome.samples[key]))
            )
    return points


def _finding(value: dict[str, float], interval: dict[str, tuple[float, float]]) -> str:
    said = []
    for name in ("mnist", "fashion_mnist"):
        low, high = interval[f"{name}: difference"]
        which = "capacity orders better" if low > 0 else "ε orders better" if high < 0 else "no difference is shown"
        ours, theirs = value[f"{name}: log capacity"], value[f"{name}: epsilon"]
        said.append(f"{name}: rank correlation {ours:.3f} with log capacity, {theirs:.3f} with ε: {which}.")
    return " ".join(said)


def _point(point: Point) -> dict[str, Any]:
    error = mean_interval(point.mse)
    return {
        "data": point.data,
        "mechanism": point.mechanism,
        "epsilon": float(f"{point.epsilon:.6g}"),
        "log capacity": float(f"{point.log_capacity:.6g}"),
        "protection": point.protection,
        "mse": float(f"{error.mean:.4g}"),
        "low": float(f"{error.low:.4g}"),
        "high": float(f"{error.high:.4g}"),
    }
