"""What a plan will cost: cells, evaluations, time and memory, from the first steps of its own attacks and trainings.

Every adversary is started against every defense and stopped after a few steps; what they took is what the rest will
take. Every defense that is trained with makes a step, on a few records where one is slow. A spec that names the user's
own code is counted, not timed: ``check`` imports none of it.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from leakgauge.audit import cells
from leakgauge.audit.plan import ARMS, IDENTITY, Cell, Plan, plan, shown, trainings
from leakgauge.audit.prepare import Prepared, prepare
from leakgauge.audit.store import Store
from leakgauge.expr import PATH
from leakgauge.study.clients import CHUNK
from leakgauge.study.spec import Spec
from leakgauge.training import train

WARM, TIMED = 2, 6
"""Steps before the stopwatch starts, and steps under it."""
MOST_PROBES = 24
FEW, QUICK = 4, 1.0
"""Records of a training step under the stopwatch, and seconds below which the whole batch is timed."""


@dataclass(frozen=True)
class Estimate:
    """A plan in numbers; what was not measured is None."""

    counts: dict[str, int]
    """Kind → cells: attacks on the defenses, the same on the update without one (controls), and so on."""
    evaluations: int | None = None
    seconds: float | None = None
    """Of everything; ``training`` of them for trainings."""
    training: float = 0.0
    megabytes: float | None = None

    @property
    def cells(self) -> int:
        return sum(self.counts.values())

    def shares(self) -> str:
        """What else is among the cells."""
        named = {"control": "on the update without a defense", "ablation": "without a grant"}
        found = [f"{_many(n, kind)} {named.get(kind, '')}".strip() for kind, n in self.counts.items() if n]
        return f" ({', '.join(found)})" if len(found) > 1 else ""

    def sentences(self) -> list[str]:
        """What ``check`` prints."""
        if self.seconds is None or self.evaluations is None or self.megabytes is None:
            return ["work: not estimated, since that would import your code; the audit shows the time left as it runs"]
        taught = self.counts["training"]
        trained = (
            f", and {_many(taught, 'training')} (about {_duration(self.training)} of the time, from one step of each, "
            f"on {FEW} records where it is slow)"
            if taught
            else ""
        )
        return [
            f"work: about {self.evaluations:,} evaluations of one update{trained}",
            f"time: about {_duration(self.seconds)} with one worker, {_duration(self.seconds / 2)} with two (of one "
            f"processor each, from the first steps of each attack{' and training' if taught else ''})",
            f"memory: about {self.megabytes:,.0f} MB per worker",
        ]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def strangers(spec: Spec) -> list[str]:
    """The user's own code that a spec names."""
    task = spec.task
    texts = [task.model, task.loss, task.data, *spec.defenses.values()]
    texts += [text for name in spec.adversaries for text in spec.settings(name)]
    return list(dict.fromkeys(path for text in texts for path in PATH.findall(text)))


def estimate(spec: Spec, home: Path, *, ablate: bool = False) -> Estimate:
    """Count the cells of a sound spec, and time them where none of the user's code is needed."""
    if strangers(spec):
        chunks = -(-spec.task.records // CHUNK)
        each = len(ARMS) * chunks * len(spec.adversaries) * len(set(spec.checkpoints.train_steps))
        given = set(spec.defenses.values())
        return Estimate({"attack": each * len(given), "control": each * (IDENTITY not in given)})
    torch.set_num_threads(1)  # as a worker has
    prepared = prepare(spec, home)
    planned = plan(spec, prepared, ablate=ablate)
    attacks = [c for c in planned.cells if c.kind == "attack"]
    probes: dict[str, _Probe] = {}
    for cell in attacks:
        key = f"{cell.params['defense']} {cell.params['adversary']}"
        if key not in probes:
            source = attacks[0] if len(probes) >= MOST_PROBES else cell
            probes[key] = _timed(source, prepared)
    kinds = [probes[f"{c.params['defense']} {c.params['adversary']}"] for c in attacks]
    tuned = sum(len(c.params["settings"]) for c in planned.cells if c.kind == "tune")
    seconds = sum(p.seconds for p in kinds) * (1 + tuned / max(1, len(attacks)))
    sizes = [c.params["records"][1] - c.params["records"][0] for c in attacks]
    taught = [c for c in planned.cells if c.kind == "train"]
    lasting = {text: _trained(c, prepared) for text, c in {c.params["defense"]: c for c in taught}.items()}
    training = sum(lasting[c.params["defense"]] for c in taught)
    return Estimate(
        _counts(spec, planned),
        sum(p.steps * size for p, size in zip(kinds, sizes, strict=True)),
        seconds + training,
        training,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024),
    )


def _counts(spec: Spec, planned: Plan) -> dict[str, int]:
    own = {shown(text): shown(trained) for text, trained in trainings(spec).items() if text in spec.defenses.values()}
    found = dict.fromkeys(("attack", "control", "ablation", "tuning", "training"), 0)
    for cell in planned.cells:
        given = cell.params
        if cell.kind != "attack":
            found[{"tune": "tuning", "train": "training"}[cell.kind]] += 1
        elif "without" in given:
            found["ablation"] += 1
        else:
            asked = given["defense"] in own and given["trained"] in (None, own[given["defense"]])
            found["attack" if asked else "control"] += 1
    return found


def _trained(cell: Cell, prepared: Prepared) -> float:
    """Seconds of a training."""
    given, batch = cell.params, min(cell.params["batch"], len(prepared.train))
    task = prepared.task.protect(given["defense"])

    def step(records: int) -> float:
        begun = time.process_time()
        train(task, prepared.train, steps=1, batch=records, learning_rate=given["learning_rate"], keep=())
        return time.process_time() - begun

    few = min(FEW, batch)
    step(few)  # what is loaded and compiled once
    each = step(few) * batch / few
    return float(max(given["train_steps"])) * (step(batch) if each < QUICK else each)


class _EnoughError(Exception):
    """The stopwatch has seen enough steps."""


@dataclass
class _Probe:
    """A stopwatch that an attack reports its steps to."""

    steps: int = 1
    seconds: float = 0.0
    marks: list[tuple[int, float]] = field(default_factory=list)

    def __call__(self, done: int, total: int, best: float) -> None:
        self.steps = total
        if done >= WARM:
            self.marks.append((done, time.process_time()))
        if done >= WARM + TIMED:
            raise _EnoughError


def _timed(cell: Cell, prepared: Prepared) -> _Probe:
    """How long a cell takes, from the first steps of its attack on the model as given."""
    params = {**cell.params, "step": 0, "arm": "real"}
    if not isinstance(params["adversary"], str):
        params["adversary"] = params["adversary"][0]
    probe, begun = _Probe(), time.process_time()
    try:
        cells.run(Cell(cell.id, "attack", params), prepared, Store(Path()), progress=probe)
    except _EnoughError:
        (first, start), (last, stop) = probe.marks[0], probe.marks[-1]
        each = (stop - start) / (last - first)
        probe.seconds = (start - begun) + each * (probe.steps - first)
    else:
        probe.seconds = time.process_time() - begun
    return probe
