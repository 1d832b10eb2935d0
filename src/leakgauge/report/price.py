"""What an adversary pays for one record, end to end, from the times that the attacks of this audit took.

After Table 3 of Huang et al., Evaluating Gradient Inversion Attacks and Defenses, 2021. Times depend on the machine, so
prices are no part of ``result.json``: they come from ``timings.json`` and ``plan.json`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import UNDEFENDED, Adversary, Defense
from leakgauge.papers.gradattack.table_3 import Costs, Price
from leakgauge.report.reading import Run

SIZES = (5_000, 50_000, 500_000)
"""Records of a client, as in the paper, where a spec does not say how many yours has."""
SOLVING_ROUNDS = 3
"""Rounds that undo MixUp with nothing granted: from three on every record came back (evidence: ``hidden_mixing``)."""
HOUR = 3600.0
MOST = 2**53
"""A count from a file that is larger is none: it would leave the range of a float somewhere."""


@dataclass(frozen=True)
class Bill:
    """One defense at one checkpoint.

    ``attack``: seconds of one processor for one update, by the ``adversary`` with the best mean score. ``recovered``:
    seconds per recognised record, all attempts of all adversaries counted; None where none was. ``mixed``: the size of
    a client's data set → the price under a defense that mixes records; empty too where none of the encodings was
    recognised. ``training``: seconds of training over those without a defense.
    """

    name: str
    step: int
    adversary: str
    attack: float
    recovered: float | None
    mixed: Mapping[int, Price]
    training: float | None

    @property
    def mixes(self) -> bool:
        return bool(self.mixed)

    @property
    def secret(self) -> bool:
        """Whether the adversary has to find out which encodings belong together, as the paper's does."""
        return any(price.solving for price in self.mixed.values())


def bills(run: Run, *, records: int | None = None, epochs: int | None = None) -> list[Bill]:
    """A bill for every defense whose attacks were timed; ``records`` and ``epochs`` instead of the spec's [price]."""
    timings, plan, asked = run.timings(), run.plan(), _section(run.result.spec, "price")
    own_size = records or _count(asked.get("records"))
    sizes = (own_size,) if own_size else SIZES
    batch = _count(_section(_section(run.result.spec, "task"), "recipe").get("batch")) or 1
    costs = Costs(batch=batch, epochs=epochs or _count(asked.get("epochs")) or Costs().epochs)
    listed = []
    for checkpoint, defense in run.result.each():
        each = [(a, _one_update(a, defense, checkpoint.step, plan, timings)) for a in defense.adversaries]
        timed = [(a.mean, a.name, seconds) for a, seconds in each if seconds and a.mean is not None]
        if not timed or len(timed) < len(each):
            continue
        _, best, seconds = max(timed, key=lambda one: one[0])
        spent, known = sum(seconds for *_, seconds in timed), defense.attack.recognised
        recovered = spent * len(defense.records) / batch / known if known else None
        own = replace(costs, attack=seconds / HOUR)
        mixed = {n: cost for n in sizes if (cost := _mixed(defense, own, n))}
        ratio = _training(defense, plan, timings) if checkpoint.step else None
        listed.append(Bill(defense.name, checkpoint.step, best, seconds, recovered, mixed, ratio))
    return listed


def _mixed(defense: Defense, costs: Costs, records: int) -> Price | None:
    """The paper's attack where the mixing is secret (InstaHide); where it is solvable (MixUp) only the inversions."""
    if defense.encoding is not None and not defense.encoding.recognised:
        return None
    mixing = {part.mixing for part in defense.parts}
    if "secret" in mixing:
        return costs.mixed(records)
    if "solvable" in mixing:
        return Price(records * SOLVING_ROUNDS / costs.batch * costs.attack)
    return None


def defense(result: Result, bill: Bill) -> Defense:
    """The defense that a bill is about."""
    return next(d for c, d in result.each() if (c.step, d.name) == (bill.step, bill.name))


def _section(spec: Any, name: str) -> dict[str, Any]:
    section = spec.get(name) if isinstance(spec, dict) else None
    return section if isinstance(section, dict) else {}


def _count(value: Any) -> int | None:
    """A number of things, or None for what is none: a result may have been written by anybody."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST else None


def _one_update(
    adversary: Adversary, defense: Defense, step: int, plan: list[dict[str, Any]], timings: Mapping[str, float]
) -> float | None:
    """Mean seconds of an attack on one update, over its cells; several are attacked at once."""
    spent, updates = 0.0, 0
    for cell in plan:
        params = cell["params"]
        mine = (params.get("step"), params.get("defense"), params.get("arm")) == (step, defense.expression, "real")
        settings = params.get("adversary")
        named = adversary.expression in (settings if isinstance(settings, list) else [settings])
        edges = params.get("records")
        if mine and named and not params.get("without") and cell["id"] in timings and _range(edges):
            spent, updates = spent + timings[cell["id"]], updates + edges[1] - edges[0]
    return spent / updates if updates else None


def _range(edges: Any) -> bool:
    whole = isinstance(edges, list) and len(edges) == 2 and all(isinstance(e, int) for e in edges)
    return whole and 0 <= edges[0] < edges[1] < MOST


def _training(defense: Defense, plan: list[dict[str, Any]], timings: Mapping[str, float]) -> float | None:
    """Seconds of the trainings with a defense over those without, seed by seed; None where it was not trained with."""
    by: dict[str, dict[str, float]] = {}
    for cell in plan:
        if cell["kind"] == "train" and cell["id"] in timings:
            by.setdefault(str(cell["params"].get("defense")), {})[str(cell["params"].get("seed"))] = timings[cell["id"]]
    own, plain = by.get(defense.expression, {}), by.get(UNDEFENDED, {})
    ratios = [own[seed] / plain[seed] for seed in own if plain.get(seed)]
    return median(ratios) if ratios else None


def duration(seconds: float) -> str:
    """``3.1 s``, ``4.2 min``, ``934 h``, ``5.3 years``."""
    hours = seconds / HOUR
    if hours >= 2 * 8760:
        return f"{hours / 8760:,.1f} years"
    if hours >= 1.5:
        return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.0f} h"
    if seconds >= 90:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"


def one_record(bill: Bill) -> str:
    """The price of one record end to end, in words."""
    if bill.mixes:
        return "; ".join(f"{_total(price)} if a client holds {n:,}" for n, price in bill.mixed.items())
    return "none was recognised" if bill.recovered is None else duration(bill.recovered)


def _total(price: Price) -> str:
    """``2,459 h (427 h of them the paper's, of a GPU)``."""
    total = duration(HOUR * price.total)
    if not price.solving:
        return total
    return f"{total} ({duration(HOUR * (Costs.network + price.solving))} of them the paper's, of a GPU)"


EXPLAINED = (
    "Times are processor time of the machine that ran this audit; others are faster or slower. One attack: the mean "
    "time per update of the adversary with the best mean score, several updates at a time. One record, end to end: the "
    "time of all attempts by all adversaries, per record that was recognised."
)
HIDDEN = (
    "Under InstaHide one record costs the whole data set (Huang et al., 2021, Table 3): N T / b + n / b inversions at "
    "the time measured here, and 10 hours for a network that finds which encodings share a record, and "
    "(1/6) (N T / 5000)² hours for the combinatorial step. Both are GPU hours of the paper, added as they are to the "
    "processor time of this machine. Whoever is told which records were mixed skips them."
)
SOLVED = (
    f"Under MixUp the {SOLVING_ROUNDS} N / b updates of {SOLVING_ROUNDS} rounds are inverted at the time measured here "
    "and give all N records. How they were mixed need not be known; it follows from the encodings. That last step took "
    "seconds for the 50 records of a client; for more records it was not measured, and it is not counted."
)


def explained(listed: Sequence[Bill]) -> str:
    """What the prices rest on."""
    mixes = [b for b in listed if b.mixes]
    sentences = [
        EXPLAINED,
        HIDDEN if any(b.secret for b in mixes) else "",
        SOLVED if any(not b.secret for b in mixes) else "",
    ]
    return " ".join(filter(None, sentences))
