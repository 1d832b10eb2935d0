"""Figure 1: the attack's error against ε and against the Bayes capacity.

The paper's claim is drawn, not printed: capacity orders the error across mechanisms better than ε does. Ours is a
number: the rank correlation with the mean error, over the points of both mechanisms. In words it says that over ε the
error falls under Gaussian noise and "remains relatively stable" under von Mises-Fisher noise. Of its ε it names one,
173: that is asked from 1 to the next point of our grid, 316, with bars of ours. Up to 10⁶ both fall to nearly nothing.
"""

from __future__ import annotations

from leakgauge.papers.capacity.points import EPSILONS, points_of
from leakgauge.papers.capacity.rank_correlation import rank_correlations
from leakgauge.papers.contract import Cell, Figure, Measured, Size, Table, at_least, at_most, difference
from leakgauge.papers.sources import CAPACITY

SMOKE = "fashion_mnist_sample"
DIFFERENCE = "|rank correlation| of capacity less that of ε"
FALL = "error falls over the grid by"
NAMED = (EPSILONS[0], next(epsilon for epsilon in EPSILONS if epsilon > 173))
"""The ends of the range around the one ε that the paper names."""


def measure(
    name: str, records: int = 16, tuning: int = 4, steps: int = 200, epsilons: tuple[float, ...] = EPSILONS
) -> Measured:
    """All points of a data set, in one batch: the attack is blind to the protection."""
    points = points_of(name, epsilons=epsilons, records=records, tuning=tuning, steps=steps)
    ranks = rank_correlations(points, resamples=200)
    samples = {f"{name}: {proxy}": [one.value] for proxy, one in ranks.items() if proxy != "difference"}
    samples[f"{name}: {DIFFERENCE}"] = [ranks["difference"].value]
    last = {kind: [p for p in points if p.mechanism == kind] for kind in ("gaussian", "vmf")}
    for kind, mine in last.items():
        samples[f"{name}, {kind}: {FALL}"] = (mine[0].mse - mine[-1].mse).tolist()
    keys = {f"{name}, {p.mechanism}, ε = {p.epsilon:.6g}": p for p in points}
    samples |= {key: p.mse.tolist() for key, p in keys.items()}
    low, high = ranks["difference"].low, ranks["difference"].high
    return Measured(
        samples,
        {
            name: f"the difference of absolute correlations has the 95 % interval [{low:.3f}, {high:.3f}]",
            **{key: f"{p.protection}, total variation {p.tv_weight:g}" for key, p in keys.items()},
        },
        {
            f"{name}, {kind}, {axis}": [(getattr(p, axis), float(p.mse.mean())) for p in mine]
            for kind, mine in last.items()
            for axis in ("epsilon", "log_capacity")
        },
    )


NAMES = ("mnist", "fashion_mnist")
FEW = {"records": 2, "tuning": 1, "steps": 40, "epsilons": (1.0, 1e6)}
TABLES = (
    Table(
        "capacity/figure-1",
        "Figure 1: error against ε and against Bayes capacity",
        CAPACITY,
        tuple(
            cell
            for name in (*NAMES, SMOKE)
            for cell in (
                Cell(f"{name}: epsilon", stand_in=name == SMOKE),
                Cell(f"{name}: log capacity", stand_in=name == SMOKE),
                Cell(f"{name}: {DIFFERENCE}", None if name == SMOKE else at_least(0), stand_in=name == SMOKE),
                Cell(f"{name}, gaussian: {FALL}", at_least(0.05, ours=True), "", None, True, name == SMOKE),
                Cell(f"{name}, vmf: {FALL}", stand_in=name == SMOKE),
                *(
                    Cell(
                        f"{name}, {kind}: error falls from ε = {NAMED[0]:g} to {NAMED[1]:.0f} by",
                        expected,
                        of=difference(*(f"{name}, {kind}, ε = {epsilon:.6g}" for epsilon in NAMED)),
                        stand_in=name == SMOKE,
                    )
                    for kind, expected in (("gaussian", at_least(0.05, ours=True)), ("vmf", at_most(0.05, ours=True)))
                ),
            )
        ),
        {
            "smoke": Size({SMOKE: {"name": SMOKE, **FEW}}, ("Fashion-MNIST sample", "two ε", "2 images", "40 steps")),
            "small": Size({name: {"name": name} for name in NAMES}, ("16 images", "200 steps")),
            "full": Size({name: {"name": name, "records": 100, "steps": 4800} for name in NAMES}),
        },
        measure,
        __doc__ or "",
        {"": "with our δ and our map from ε to noise (the paper has neither) both order the error about equally well"},
        (Figure("ε", "MSE", log_x=True, of=", epsilon"), Figure("log capacity", "MSE", of=", log_capacity")),
    ),
)
