"""What changed between two runs: verdicts, scores with intervals, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leakgauge.audit.judge.values import Defense
from leakgauge.audit.judge.words import INCONCLUSIVE, Word, at_least
from leakgauge.intervals import difference_interval, mean_interval
from leakgauge.meaning import Meaning
from leakgauge.report import formats
from leakgauge.report.markdown import code, grid, plain
from leakgauge.report.reading import Run

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
VERDICTS = ("defense", "step", "before", "after", "what changed")
BOUNDS = ("defense", "step", "bound before", "bound after")
SCORES = ("defense", "step", "gain before", "gain after", "change of the mean score")
ENCODINGS = ("defense", "step", "encodings recognised before", "after", "their mean score before", "after")
SETTINGS = ("setting", "before", "after")


@dataclass(frozen=True)
class Change:
    """One defense at one checkpoint in both runs; a side that lacks it is None."""

    name: str
    step: int
    before: Defense | None
    after: Defense | None
    shift: tuple[float, float, float] | None
    """Mean, low and high of the change of the mean score (95 %)."""

    @property
    def sentence(self) -> str:
        """What the change of the verdict means; a step to or from an inconclusive word is neither better nor worse."""
        if self.before is None or self.after is None:
            return "only in the second run" if self.before is None else "only in the first run"
        old, new = self.before.attack.verdict, self.after.attack.verdict
        if old == new:
            return "same"
        return _direction(old, new)


def _direction(old: Word, new: Word) -> str:
    if new in INCONCLUSIVE:
        return "can no longer be judged"
    if old in INCONCLUSIVE:
        return "could not be judged before"
    return "worse verdict" if at_least(new, old) else "milder verdict"


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side. ``paired`` says that both report the same records, by hash."""

    metrics: tuple[Meaning, Meaning]
    paired: bool
    changes: tuple[Change, ...]
    settings: tuple[tuple[str, str, str], ...]

    @property
    def note(self) -> str:
        """How far the numbers can be compared."""
        before, after = (metric.label for metric in self.metrics)
        if before != after:
            return f"the runs score by different metrics ({before}, {after}): scores are not compared"
        same = "the same records in both runs: changes are paired"
        return same if self.paired else "different or unknown records: changes are not paired, and less certain"

    def tables(self) -> dict[str, Table]:
        """Title → heads and rows."""
        return {
            "Verdicts": (VERDICTS, [_verdict_row(c) for c in self.changes]),
            "Scores": (SCORES, [self._score_row(c) for c in self.changes]),
            **self._encodings(),
            "Bounds": (BOUNDS, [row for row in map(_bound_row, self.changes) if row[2] != row[3]]),
            "Settings": (SETTINGS, list(self.settings)),
        }

    def markdown(self) -> str:
        """The same as Markdown."""
        lines = ["# What changed", "", plain(self.note[0].upper() + self.note[1:] + ".")]
        for title, (heads, rows) in self.tables().items():
            lines += ["", f"## {title}", ""]
            dress = code if title == "Settings" else plain
            lines += grid(heads, [[dress(cell) for cell in row] for row in rows]) if rows else ["No difference."]
        return "\n".join(lines) + "\n"

    def _encodings(self) -> dict[str, Table]:
        """Scores against what clients trained on, where a defense encodes records."""
        rows = []
        for change in self.changes:
            encodings = [side.encoding if side else None for side in (change.before, change.after)]
            if any(encodings):
                means = (m.text(s.mean if s else None) for s, m in zip(encodings, self.metrics, strict=True))
                rows.append((change.name, str(change.step), *map(formats.encoding, encodings), *means))
        return {"Encodings": (ENCODINGS, rows)} if rows else {}

    def _score_row(self, change: Change) -> tuple[str, ...]:
        before, after = (
            formats.gain(side.attack.excess if side else None, metric)
            for side, metric in zip((change.before, change.after), self.metrics, strict=True)
        )
        if change.shift is None:
            return change.name, str(change.step), before, after, "–"
        if not any(change.shift):
            return change.name, str(change.step), before, after, "unchanged"
        mean, low, high = map(self.metrics[0].signed, change.shift)
        clear = "" if change.shift[1] > 0 or change.shift[2] < 0 else ", may be chance"
        return change.name, str(change.step), before, after, f"{mean} [{low}, {high}]{clear}"


def _verdict_row(change: Change) -> tuple[str, ...]:
    words = (side.attack.verdict if side else "–" for side in (change.before, change.after))
    return (change.name, str(change.step), *words, change.sentence)


def _bound_row(change: Change) -> tuple[str, ...]:
    bounds = (formats.bound(side.bound) if side else "–" for side in (change.before, change.after))
    return (change.name, str(change.step), *bounds)


def compare(before: Run, after: Run) -> Comparison:
    """What changed from one run to another, defense by defense (matched by name) and checkpoint by checkpoint."""
    hashes = before.manifest().get("reported"), after.manifest().get("reported")
    paired = hashes[0] is not None and hashes[0] == hashes[1]
    metrics = before.result.judge, after.result.judge
    old, new = _by_key(before), _by_key(after)
    changes = [
        Change(name, step, a, b, _shift(a, b, paired) if a and b and metrics[0].name == metrics[1].name else None)
        for (name, step), a, b in ((key, old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new]))
    ]
    return Comparison(metrics, paired, tuple(changes), tuple(_settings(before, after)))


def _by_key(run: Run) -> dict[tuple[str, int], Defense]:
    return {(d.name, c.step): d for c, d in run.result.each()}


def _shift(before: Defense, after: Defense, paired: bool) -> tuple[float, float, float] | None:
    """The change of the mean score with its interval; record by record where both runs report the same records."""
    old, new = ({r.record: r.score for r in d.records} for d in (before, after))
    if not old or not new:
        return None
    if paired and old.keys() == new.keys():
        interval = mean_interval([new[record] - old[record] for record in old])
    else:
        interval = difference_interval(list(new.values()), list(old.values()))
    return interval.mean, interval.low, interval.high


def _settings(before: Run, after: Run) -> list[tuple[str, str, str]]:
    old, new = (
        {**_flat(r.result.spec), **_flat(r.result.environment, "environment."), **_flat(r.manifest(), "manifest.")}
        for r in (before, after)
    )
    keys = dict.fromkeys([*old, *new])
    return [(k, old.get(k, "–"), new.get(k, "–")) for k in keys if old.get(k) != new.get(k)]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``{"task": {"records": 6}}`` → ``{"task.records": "6"}``."""
    flat: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= _flat(inner, f"{prefix}{key}.")
        elif inner is not None:
            flat[f"{prefix}{key}"] = str(inner)
    return flat
