"""Comparisons: agreement first, then turns in one process, then ratios."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from benchmarks.cases import Case, Setting
from benchmarks.machine import gemm_peak, load
from benchmarks.ours import Ours, at_start
from benchmarks.peers import Peer
from benchmarks.stamps import WARM, Cost, Stamps

ENGINES = ("ours", "peer", "peer_image_only")
TOLERANCE = 1e-4


class DisagreementError(Exception):
    """The engines do not compute the same objective: their times cannot be compared."""


@dataclass(frozen=True)
class Spread:
    """The median of the repeats, with the least and the greatest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Comparison:
    """One case: what each engine cost in each repeat, and what it had to compute."""

    case: Case
    gap: tuple[float, float]
    costs: dict[str, list[Cost]] = field(default_factory=lambda: {name: [] for name in ENGINES})
    peaks: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    flops: dict[str, float] = field(default_factory=dict)

    def milliseconds(self, engine: str, clock: str = "cpu") -> Spread:
        """Per image and iteration."""
        return Spread.of([1e3 * getattr(cost, clock) for cost in self.costs[engine]])

    def ratio(self, engine: str = "peer", clock: str = "cpu") -> Spread:
        """How many times longer the loop takes, each repeat against its neighbour in time."""
        pairs = zip(self.costs[engine], self.costs["ours"], strict=True)
        return Spread.of([getattr(theirs, clock) / getattr(ours, clock) for theirs, ours in pairs])

    def percent_of_peak(self, engine: str) -> float:
        """Executed FLOPs of linear algebra per processor second, in percent of a large GEMM's."""
        seconds = statistics.median(cost.cpu for cost in self.costs[engine])
        return 100 * self.flops[engine] / seconds / max(self.peaks)

    def row(self) -> dict[str, Any]:
        """Everything, as plain numbers."""
        return {
            "case": self.case.name,
            "problems": self.case.problems,
            "gap": {"value": self.gap[0], "gradient": self.gap[1]},
            "ratio": {
                engine: {clock: vars(self.ratio(engine, clock)) for clock in ("cpu", "wall")} for engine in ENGINES[1:]
            },
            "milliseconds": {
                engine: {clock: vars(self.milliseconds(engine, clock)) for clock in ("cpu", "wall")}
                for engine in ENGINES
            },
            "megaflop": {engine: self.flops[engine] / 1e6 for engine in ENGINES},
            "percent_of_peak": {engine: self.percent_of_peak(engine) for engine in ENGINES},
            "gemm_gflops": max(self.peaks) / 1e9,
            "load": max(self.loads),
        }


def compare(
    case: Case, repeats: int, *, steps: int | None = None, say: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Check that the engines agree, then let them take turns ``repeats`` times."""
    setting = Setting.of(case)
    made = Comparison(case, agreement(setting))
    running = engines(setting)
    steps = steps or case.model.steps
    for repeat in range(repeats):
        for name, engine in running.items():
            stamps = Stamps()
            gc.collect()
            engine.run(steps + WARM, stamps)
            made.costs[name].append(stamps.cost(case.problems if name == "ours" else 1))
        made.peaks.append(gemm_peak())
        made.loads.append(load())
        say(f"{case.name}: repeat {repeat + 1} of {repeats}, {_last(made):.2f}x")
    made.flops = {name: flops(engine, case) for name, engine in running.items()}
    return made


def engines(setting: Setting) -> dict[str, Ours | Peer]:
    """The three engines on one setting, by name."""
    return {"ours": Ours(setting), "peer": Peer(setting, False), "peer_image_only": Peer(setting, True)}


def _last(made: Comparison) -> float:
    return made.costs["peer"][-1].cpu / made.costs["ours"][-1].cpu


def agreement(setting: Setting, images: int = 2) -> tuple[float, float]:
    """The greatest relative gap of value and gradient between our objective and the peers', at our starts."""
    starts, objective, gradient = at_start(setting)
    peer = Peer(setting, only_image=True)
    gaps = []
    for n in range(min(images, setting.case.problems)):
        x = starts[n].clone().requires_grad_()
        loss = peer.objective(n, x)()
        (slope,) = torch.autograd.grad(loss, x)
        value = float((objective[n] - loss.detach()).abs() / loss.detach().abs())
        gaps.append((value, float((gradient[n] - slope).norm() / slope.norm())))
    worst = max(value for value, _ in gaps), max(slope for _, slope in gaps)
    if not all(gap <= TOLERANCE for pair in gaps for gap in pair):  # a NaN agrees with nothing
        raise DisagreementError(
            f"{setting.case.name}: our objective and the peers' differ at the start by {worst[0]:.1e} in value and "
            f"{worst[1]:.1e} in gradient (relative; at most {TOLERANCE:.0e} is accepted)"
        )
    return worst


def flops(engine: Ours | Peer, case: Case) -> float:
    """FLOPs of the linear algebra of one iteration of one image: the difference of two runs, as dispatched."""
    counts = []
    for steps in (1, 2):
        with _Counter() as counter:  # type: ignore[no-untyped-call]
            engine.run(steps, Stamps())
        counts.append(counter.total)
    images = case.problems if isinstance(engine, Ours) else engine.images
    return float(counts[1] - counts[0]) / images


class _Counter(TorchDispatchMode):
    """Torch's own formulas for products and convolutions. (Its FlopCounterMode does not bear ``autograd.grad``.)"""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def _matrix_vector(matrix: torch.Size, *_: Any, **__: Any) -> int:
    return 2 * matrix[0] * matrix[1]


_ATEN = torch.ops.aten
_FORMULAS = {
    **flop_registry,
    _ATEN.mv: shape_wrapper(_matrix_vector),
    _ATEN.addmm_: flop_registry[_ATEN.addmm],
    _ATEN.baddbmm_: flop_registry[_ATEN.baddbmm],
}
