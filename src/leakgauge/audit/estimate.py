"""What a plan will cost: cells, evaluations, time and memory, from the first steps of its own attacks and trainings.

Every adversary is started against every defense and stopped after a few steps; what they took is what the rest will
take. Every defense that is trained with makes a step, on a few records where one is slow. Scores of unrelated updates
against every record are timed on a few records. A spec that names the user's own code is counted, not timed, unless
one asks for it: ``check`` imports none of it by itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from leakgauge.adversary.simulation import simulate
from leakgauge.attacks.choosing import Chooser
from leakgauge.audit.attacking import batches
from leakgauge.audit.cells import ARMS, AttackCell, TrainCell, TuneCell, text_of
from leakgauge.audit.nearness import nearness
from leakgauge.audit.plan import CHUNK, IDENTITY, Plan, plan, trained_with
from leakgauge.audit.possible import Faults, refuse_impossible
from leakgauge.audit.scoring import CROSS, cross, scores
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work
from leakgauge.study.draft import Draft
from leakgauge.study.study import Study
from leakgauge.threads import one_thread
from leakgauge.training import train

WARM, TIMED = 2, 6
"""Steps before the stopwatch starts, and steps under it."""
MOST_PROBES = 24
CROSSED = ("another",)
"""Arms whose reconstructions are scored against the other records: work that grows faster than their number."""
PER_CELL = 0.005
"""Seconds of plan, store, judge and reports for every cell: the limit that `make bench-scale` holds."""
SCORED = 8
"""Updates whose records they are scored against under the stopwatch."""
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
    simulated: tuple[str, ...] = ()
    """How the adversary models parts that say nothing of themselves, or that it cannot."""

    @property
    def cells(self) -> int:
        return sum(self.counts.values())

    def shares(self) -> str:
        """What else is among the cells."""
        named = {"control": "on the update without a defense", "ablation": "without a grant"}
        groups = [f"{_many(n, kind)} {named.get(kind, '')}".strip() for kind, n in self.counts.items() if n]
        return f" ({', '.join(groups)})" if len(groups) > 1 else ""

    def sentences(self) -> list[str]:
        """What ``check`` prints."""
        if self.seconds is None or self.evaluations is None:
            return ["work: not estimated, since that would import your code; `check --time` does so, and times it"]
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
            *([] if self.megabytes is None else [f"memory: about {self.megabytes:,.0f} MB per worker"]),
            *self.simulated,
        ]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def estimate(draft: Draft, *, ablate: bool = False, own_code: bool = False) -> Estimate:
    """Count the cells of a sound spec, and time them where none of the user's code is needed, or ``own_code`` is."""
    if draft.own_code and not own_code:
        spec = draft.spec
        chunks = -(-spec.task.records // CHUNK)
        each = len(ARMS) * chunks * len(spec.adversaries) * len(set(spec.checkpoints.train_steps))
        texts = {reading.text if reading.value is None else repr(reading.value) for reading in draft.defenses.values()}
        return Estimate({"attack": each * len(texts), "control": each * (repr(IDENTITY) not in texts)})
    with one_thread():  # as a worker has
        return _measured(draft.study(), ablate)


def _measured(study: Study, ablate: bool) -> Estimate:
    refuse_impossible(study)
    faults = Faults(study)
    planned, work = plan(study, ablate=ablate), Work(study, Store(Path()))
    attacks = [cell for cell in planned.cells if isinstance(cell, AttackCell)]
    probes: dict[str, _Probe] = {}
    for cell in attacks:
        if _pair(cell) not in probes:
            probes[_pair(cell)] = _tried(attacks[0] if len(probes) >= MOST_PROBES else cell, work, faults)
    faults.refuse()
    timed = [probes[_pair(cell)] for cell in attacks]
    sizes = [cell.updates[1] - cell.updates[0] for cell in attacks]
    each = {_tuned_by(cell): probe.seconds / size for cell, probe, size in zip(attacks, timed, sizes, strict=True)}
    tunings = [cell for cell in planned.cells if isinstance(cell, TuneCell)]
    seconds = sum(probe.seconds for probe in timed)
    seconds += sum(_attacks_worth(cell, study) * each.get(_tuned_by(cell), 0.0) for cell in tunings)
    crossing = {size: _crossing(study, size) for size in set(sizes)}
    seconds += sum(crossing[size] for size, cell in zip(sizes, attacks, strict=True) if cell.arm in CROSSED)
    once, scoring = _scoring(study, set(sizes))
    seconds += once + PER_CELL * len(planned.cells)
    for probe, size, cell in zip(timed, sizes, attacks, strict=True):
        compared, near = scoring[size]
        wanted = cell.arm == "real" and cell.without is None
        seconds += near * (wanted - probe.whole) + compared * (not probe.whole)  # a whole one had both
    trainings = [cell for cell in planned.cells if isinstance(cell, TrainCell)]
    lasting = {how: _trained(cell, study) for how, cell in {repr(cell.defense): cell for cell in trainings}.items()}
    training = sum(lasting[repr(cell.defense)] for cell in trainings)
    return Estimate(
        _counts(study, planned),
        sum(probe.steps * size * _restarts(cell) for probe, size, cell in zip(timed, sizes, attacks, strict=True)),
        seconds + training,
        training,
        _peak_megabytes(),
        tuple(_simulated(study)),
    )


def _simulated(study: Study) -> Iterator[str]:
    """A sentence for every part that has nothing but a ``release``."""
    for name, protection in study.defenses.items():
        simulation = simulate(replace(study.task, protection=protection))
        for stand_in in simulation.stand_ins:
            yield f"defense {name}: {stand_in!r} is {stand_in.sentence}"
        for part, reason in simulation.unmodelled:
            yield (
                f"defense {name}: {part!r} cannot be modelled ({reason}): where no attack succeeds its verdict is "
                "`too weak`, never `no evidence`; give the part an `apply` or a density"
            )


def _tuned_by(cell: AttackCell | TuneCell) -> str:
    """What an attack and the tuning before it have in common: the defense, and the settings."""
    return f"{text_of(cell.defense)} {text_of(cell.settings)}"


def _attacks_worth(cell: TuneCell, study: Study) -> float:
    """What a choice costs, in attacks on one update: those of every setting, or what the chooser says of itself."""
    first = cell.settings[0]
    if len(cell.settings) == 1 and isinstance(first, Chooser):
        return first.attacks_worth
    return len(cell.settings) * len(study.tuning) / study.task.recipe.batch


def _restarts(cell: AttackCell) -> int:
    """The starts of each problem; 1 for an attack that says nothing of them."""
    return int(getattr(cell.settings[0], "restarts", 1))


def _crossing(study: Study, updates: int) -> float:
    """Seconds in which so many reconstructions are scored against every record, from a few of these."""
    every = batches(study.records.inputs, study.task.recipe.batch)
    few, guesses = every[:SCORED], every[:1].expand(updates, *every.shape[1:]).contiguous()
    cross(study.metrics, guesses, few[:1])  # what is loaded once
    begun = time.process_time()
    cross(study.metrics, guesses, few)
    return (time.process_time() - begun) * min(len(every), CROSS) / len(few)


def _scoring(study: Study, sizes: Set[int]) -> tuple[float, dict[int, tuple[float, float]]]:
    """Seconds that are paid once, and by the updates of a cell: of its scores, and of its nearness to other records."""
    batch, every = study.task.recipe.batch, study.records.inputs
    begun = time.process_time()
    nearness(study, every[:batch], 0)  # what is loaded once
    once, each = time.process_time() - begun, dict[int, tuple[float, float]]()
    for size in sizes:
        inputs = every[: size * batch]
        begun = time.process_time()
        scores(study.metrics, inputs, inputs)
        middle = time.process_time()
        nearness(study, inputs, 0)
        each[size] = middle - begun, time.process_time() - middle
    return once, each


def _pair(cell: AttackCell) -> str:
    return f"{cell.params['defense']} {cell.params['adversary']}"


def _peak_megabytes() -> float | None:
    """The most memory this process has had; None where the system does not say."""
    try:
        import resource  # Unix only
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def _counts(study: Study, planned: Plan) -> dict[str, int]:
    own = {repr(how): repr(trained_with(study, how)) for how in study.defenses.values()}
    counts = dict.fromkeys(("attack", "control", "ablation", "tuning", "training"), 0)
    for cell in planned.cells:
        match cell:
            case TrainCell():
                counts["training"] += 1
            case TuneCell():
                counts["tuning"] += 1
            case AttackCell(without=str()):
                counts["ablation"] += 1
            case AttackCell():
                how, trained = cell.params["defense"], cell.params["trained"]
                counts["attack" if how in own and trained in (None, own[how]) else "control"] += 1
    return counts


def _trained(cell: TrainCell, study: Study) -> float:
    """Seconds of a training."""
    batch, task = min(cell.schedule.batch, len(study.train)), study.under(cell.defense)

    def step(records: int) -> float:
        begun = time.process_time()
        train(task, study.train, steps=1, batch=records, learning_rate=cell.schedule.learning_rate, keep=())
        return time.process_time() - begun

    few = min(FEW, batch)
    step(few)  # what is loaded and compiled once
    each = step(few) * batch / few
    return float(max(cell.schedule.train_steps)) * (step(batch) if each < QUICK else each)


class _EnoughError(Exception):
    """The stopwatch has seen enough steps."""


@dataclass
class _Probe:
    """A stopwatch that an attack reports its steps to."""

    steps: int = 1
    seconds: float = 0.0
    marks: list[tuple[int, float]] = field(default_factory=list)
    whole: bool = False
    """The cell ran to its end, with its scores."""

    def __call__(self, done: int, total: int, best: float) -> None:
        self.steps = total
        if done >= WARM:
            self.marks.append((done, time.process_time()))
        if done >= WARM + TIMED:
            raise _EnoughError


def _tried(cell: AttackCell, work: Work, faults: Faults) -> _Probe:
    """How long a cell takes; what its attack raises is a fault of the adversary, whoever wrote the code."""
    try:
        return _timed(cell, work)
    except Exception as fault:
        faults.add(cell.settings, cell.defense, fault)
        return _Probe()


def _timed(cell: AttackCell, work: Work) -> _Probe:
    """How long a cell takes, from the first steps of its attack on the model as given."""
    probe, begun = _Probe(), time.process_time()
    try:
        work.run(replace(cell, step=0, arm="real", settings=cell.settings[:1]), progress=probe)
    except _EnoughError:
        (first, start), (last, stop) = probe.marks[0], probe.marks[-1]
        each = (stop - start) / (last - first)
        probe.seconds = (start - begun) + each * (probe.steps - first)
    else:
        probe.seconds, probe.whole = time.process_time() - begun, True
    return probe
