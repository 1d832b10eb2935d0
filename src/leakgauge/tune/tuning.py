"""A whole search: which settings of an attack do best against each defense, on records that are never reported."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.audit.run import claim
from leakgauge.audit.store import Store, canonical, write
from leakgauge.errors import DomainError, LeakgaugeError, nearest, refuse
from leakgauge.metrics import Interval, mean_interval
from leakgauge.storage import json_files
from leakgauge.storage.lock import locked
from leakgauge.storage.private import prepare
from leakgauge.study.study import Study
from leakgauge.threads import one_thread
from leakgauge.tune.presets import Preset
from leakgauge.tune.searching import POINTS, WHERE, Sampler, listed, miscounted, optuna, problems, searched
from leakgauge.tune.space import Space
from leakgauge.tune.trials import Bench, Trial

Report = Callable[[str, int, int, Trial], None]
"""Called after every trial with the defense, how many trials are done, how many there are, and the trial."""


@dataclass(frozen=True)
class Tuned:
    """What a search found against one defense; ``plain`` is the attack without the search, where there is one."""

    defense: str
    metric: str
    trials: tuple[Trial, ...]
    plain: Trial | None = None

    @property
    def ranked(self) -> list[Trial]:
        """Trials that worked, each setting once, the best first; of equal ones the first."""
        worked = {trial.attack: trial for trial in self.trials if trial.score is not None}
        return sorted(worked.values(), key=lambda trial: -(trial.score or 0.0))

    @property
    def best(self) -> Trial:
        return self.ranked[0]

    @property
    def recommended(self) -> Trial:
        """The best, unless the attack without the search did as well."""
        plain = self.plain
        better = plain is None or plain.score is None or (self.best.score or 0.0) > plain.score
        return self.best if better or plain is None else plain

    @property
    def interval(self) -> Interval:
        """Of the best score, which is too high: these records chose the setting. An audit measures what it is worth."""
        return mean_interval(self.best.scores)

    def sentence(self) -> str:
        before = "" if self.plain is None or self.plain.score is None else f", {self.plain.score:.4g} before"
        count, records = len(self.ranked), len(self.best.scores)
        of = f"the best of {count} settings" if count > 1 else "of one setting"
        on = f"{records} records that are not reported" if records > 1 else "one record that is not reported"
        return f"{self.defense}: {self.metric} {self.best.score:.4g}{before}, on {on}; {of}{self._no_gain()}"

    def _no_gain(self) -> str:
        """That a search was for nothing, where it was."""
        alike = {trial.scores for trial in (*self.ranked, self.plain) if trial is not None and trial.score is not None}
        if len(self.ranked) > 1 and len(alike) == 1:
            return "; all of them scored the same: what was searched seems to change nothing against this defense"
        return "" if self.recommended is self.best else "; none did better than the attack without the search"

    def as_json(self) -> dict[str, Any]:
        return {
            "defense": self.defense,
            "metric": self.metric,
            "best": self.best.as_json(),
            "plain": None if self.plain is None else self.plain.as_json(),
            "trials": [trial.as_json() for trial in self.trials],
        }


def tune(
    study: Study,
    space: Space | Preset,
    out: Path | str | None = None,
    *,
    defenses: Sequence[str] | None = None,
    sampler: Sampler = "tpe",
    trials: int = 40,
    points: int = POINTS,
    updates: int = 8,
    report: Report | None = None,
) -> dict[str, Tuned]:
    """Search a space for the best settings against each defense of a study; the same call resumes.

    ``updates`` of reference records are attacked in every trial, never reported ones. Every trial is a cell in the
    folder ``out``; ``tune.json`` there says what was found, by defense and space, ``manifest.json`` on which records.
    ``trials`` and ``sampler`` (``tpe``, ``random``, or ``grid`` with ``points`` values of each range) do not matter to
    a preset.
    """
    optuna()  # one that is not installed is missed now
    refuse(_misfits(study, space))
    first = space.first if isinstance(space, Preset) else space
    wrong = [*_unknown(study, defenses or ()), *miscounted(updates, "updates")]
    if isinstance(space, Space):
        wrong += problems(space, sampler, trials, points)
    refuse(wrong)
    names = list(defenses or study.defenses)
    with nullcontext(out) if out is not None else tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        store = Store(folder)
        benches = {name: Bench(study, study.defenses[name], updates, store) for name in names}
        for bench in benches.values():
            bench.check(first)
        prepare(folder)
        with locked(folder), one_thread():
            claim(store, "search")
            store.sweep()
            found = _Found(folder / "tune.json", first.written)
            write(folder / "manifest.json", canonical(study.roles.manifest()).encode())
            searches = {name: _Search(name, bench, report) for name, bench in benches.items()}
            answers, faults = dict[str, Tuned](), list[LeakgaugeError]()
            for name, one in searches.items():
                try:
                    answers[name] = one.run(space, sampler, trials, points)
                except LeakgaugeError as fault:  # what was found against the others is not lost
                    faults.append(fault)
                found.write(answers)
    refuse(faults)
    return answers


def _misfits(study: object, space: object) -> list[LeakgaugeError]:
    """Arguments of the wrong kind, which nothing else can be asked of."""
    wrong: list[LeakgaugeError] = []
    if not isinstance(study, Study):
        remedy = 'give a leakgauge.Study, such as leakgauge.Study.load("spec.toml")'
        wrong.append(DomainError(f"study is a {type(study).__name__}", where=WHERE, remedy=remedy))
    if not isinstance(space, Space | Preset):
        remedy = 'say Space.of("adaptive(steps=300)", ["tv_weight = log(1e-5, 1e-1)"]), or give a preset'
        wrong.append(DomainError(f"space is a {type(space).__name__}", where=WHERE, remedy=remedy))
    return wrong


def _unknown(study: Study, defenses: Sequence[str]) -> list[LeakgaugeError]:
    if isinstance(defenses, str):
        what = f"defenses is a text, {defenses!r}"
        return [DomainError(what, where=WHERE, remedy=f"give a list of names: [{defenses!r}]")]
    return [
        DomainError(f"there is no defense {name!r}", where="defense", remedy=nearest(name, study.defenses))
        for name in defenses
        if name not in study.defenses
    ]


@dataclass(frozen=True)
class _Found:
    """``tune.json``: what was found against each defense in each space; other searches of the folder keep theirs."""

    path: Path
    space: str

    def __post_init__(self) -> None:
        self.write({})

    def write(self, answers: Mapping[str, Tuned]) -> None:
        others = [one for one in self._before() if (one.get("defense"), one.get("space")) not in self._keys(answers)]
        mine = [{**one.as_json(), "space": self.space} for one in answers.values()]
        write(self.path, canonical([*others, *mine]).encode())

    def _keys(self, answers: Mapping[str, Tuned]) -> set[tuple[Any, Any]]:
        return {(one.defense, self.space) for one in answers.values()}

    def _before(self) -> list[dict[str, Any]]:
        """What earlier searches wrote; nothing where somebody else did."""
        try:
            read = json_files.loads(json_files.content(self.path)) if self.path.is_file() else []
        except (OSError, ValueError, RecursionError):
            return []
        return [one for one in read if isinstance(one, dict)] if isinstance(read, list) else []


@dataclass
class _Search:
    name: str
    bench: Bench
    report: Report | None

    def run(self, space: Space | Preset, sampler: Sampler, trials: int, points: int) -> Tuned:
        tried: list[Trial] = []
        plain = None
        if isinstance(space, Preset):
            first = self._stage(space.first, "grid", space.trials, space.points, tried, space.trials)
            if first is not None:
                self._stage(space.then(first), "grid", space.trials, space.around, tried, space.trials)
        else:
            plain = None if space.plain is None else self.bench.run(space.plain)
            self._stage(space, sampler, trials, points, tried, len(listed(space, sampler, trials, points)) or trials)
        tuned = Tuned(self.name, self.bench.metric, tuple(tried), plain)
        if not tuned.ranked:
            raise LeakgaugeError(
                f"every trial failed, the first with: {tried[0].fault}",
                where=f"defense {self.name}",
                remedy="search another attack, or say --defense to leave this one out",
            )
        return tuned

    def _stage(
        self, space: Space, sampler: Sampler, trials: int, points: int, tried: list[Trial], total: int
    ) -> Mapping[str, Any] | None:
        """Search one space, adding to ``tried``; its best point, None if none worked."""
        best: tuple[float, Mapping[str, Any]] | None = None

        def measure(values: Mapping[str, Any]) -> float | None:
            nonlocal best
            trial = self.bench.run(space.at(values))
            tried.append(trial)
            if self.report is not None:
                self.report(self.name, len(tried), total, trial)
            if trial.score is not None and (best is None or trial.score > best[0]):
                best = trial.score, dict(values)
            return trial.score

        for _ in searched(space, sampler, trials, self.bench.study.seed, measure, points):
            pass
        return None if best is None else best[1]


__all__ = ["Trial", "Tuned", "tune"]
