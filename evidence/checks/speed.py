"""Speed against the peers' loop: ratios of processor time, in one process, on one thread, under one tuned allocator."""

from __future__ import annotations

from typing import Any

from benchmarks.before import against
from benchmarks.cases import KINDS, Case, case
from benchmarks.machine import cpu, prepare
from benchmarks.measure import ENGINES, Comparison, compare
from benchmarks.memory import measured
from evidence import Context, Measurement, Number, at_least, check, numbers

REPEATS = 7
NAMES = {
    "ours": "ours, all problems at once",
    "peer": "the peers' loop, one image at a time",
    "peer_image_only": "the same loop, differentiating only with respect to the image",
}


def _setting(made: Comparison, malloc: str) -> str:
    return (
        f"{made.case.problems} problems at once{' of one observation' if made.case.shared else ''} on one thread of "
        f"{cpu()}; allocator {malloc}, for every engine; processor time, {len(made.peaks)} turns in one process, "
        "the interval from the least ratio to the greatest"
    )


def _speed(which: Case, bar: float, context: Context) -> Measurement:
    malloc = prepare("tuned")
    made = compare(which, REPEATS, say=context.say)
    found, wall, only = made.ratio(), made.ratio(clock="wall"), made.ratio("peer_image_only")
    return Measurement(
        {"times the loop": Number(found.median, at_least(bar), (found.low, found.high))},
        detail=f"{_setting(made, malloc)}; by wall time {wall.median:.1f}x; against the loop that differentiates only "
        f"with respect to the image {only.median:.1f}x; GEMM peak {max(made.peaks) / 1e9:.0f} GFLOP/s; load average up "
        f"to {max(made.loads):.1f}; at the start the objectives agree to {max(made.gap):.0e}",
        table=[_engine(name, made) for name in ENGINES],
    )


def _engine(name: str, made: Comparison) -> dict[str, Any]:
    return {
        "engine": NAMES[name],
        "ms per image and iteration": round(made.milliseconds(name).median, 2),
        "wall ms": round(made.milliseconds(name, "wall").median, 2),
        "MFLOP": round(made.flops[name] / 1e6, 1),
        "% of GEMM peak": round(made.percent_of_peak(name)),
        "peak memory MB": round(measured(made.case, name, "tuned").peak),
    }


@check("speed_lenet", rows="speed", cost="minutes")
def speed_lenet(context: Context) -> Measurement:
    """The sigmoid LeNet, cosine: how many times longer the peers' loop takes per image and iteration."""
    return _speed(case("dlg_lenet"), 7, context)


@check("speed_bayes_cnn", rows="speed", cost="minutes")
def speed_bayes_cnn(context: Context) -> Measurement:
    """The Bayes CNN, cosine: how many times longer the peers' loop takes per image and iteration."""
    return _speed(case("bayes_cnn"), 2.7, context)


@check("speed_convbig", rows="speed", cost="minutes")
def speed_convbig(context: Context) -> Measurement:
    """ConvBig, cosine: how many times longer the peers' loop takes per image and iteration."""
    return _speed(case("convbig"), 8, context)


@check("speed_convbig_shared", rows="speed", cost="minutes")
def speed_convbig_shared(context: Context) -> Measurement:
    """ConvBig, cosine, 64 restarts of one observation: how many times longer the peers' loop takes for each."""
    return _speed(case("convbig", shared=True), 20, context)


@check("speed_resnet18", rows="speed", cost="minutes")
def speed_resnet18(context: Context) -> Measurement:
    """ResNet-18, cosine: how many times longer the peers' loop takes per image and iteration."""
    return _speed(case("resnet18"), 1.7, context)


@check("speed_likelihoods", rows="speed", cost="minutes")
def speed_likelihoods(context: Context) -> Measurement:
    """ConvBig, every likelihood but the cosine, far from the solution; the peers' loop has it in its cheapest form."""
    malloc = prepare("tuned")
    made = {kind: compare(case("convbig", kind), REPEATS, say=context.say) for kind in KINDS if kind != "cosine"}
    ratios = {kind: found.ratio() for kind, found in made.items()}
    return Measurement(
        numbers(
            {kind: ratio.median for kind, ratio in ratios.items()},
            {kind: (ratio.low, ratio.high) for kind, ratio in ratios.items()},
            at_least(2.5),
        ),
        detail=_setting(next(iter(made.values())), malloc),
        table=[_likelihood(kind, found) for kind, found in made.items()],
    )


def _likelihood(kind: str, made: Comparison) -> dict[str, Any]:
    return {
        "likelihood": kind,
        "times the loop": round(made.ratio().median, 2),
        "by wall time": round(made.ratio(clock="wall").median, 2),
        "times the image-only loop": round(made.ratio("peer_image_only").median, 2),
        "ours ms": round(made.milliseconds("ours").median, 1),
        "loop ms": round(made.milliseconds("peer").median, 1),
        "load": round(max(made.loads), 1),
        "gap": f"{max(made.gap):.0e}",
    }


BEFORE = "2c25f63"
"""The last commit before nuisances, studies and results became values."""


@check("speed_before", rows="speed-before", cost="long", uses=("benchmarks.before",))
def speed_before(context: Context) -> Measurement:
    """Our ratio to the peers' loop, over that of the former commit: both run in turns."""
    ratios = against(BEFORE, ["dlg_lenet", "bayes_cnn", "convbig"], 3, context.say)
    return Measurement(
        {case: Number(ratio, at_least(0.95)) for case, ratio in ratios.items()},
        detail=f"medians of three turns of {BEFORE} and this commit; above 1: faster than before",
    )
