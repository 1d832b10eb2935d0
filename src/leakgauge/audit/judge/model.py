"""The result of an audit: one model, which audits write and reports read. It needs neither torch nor user code."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator

from leakgauge.audit.judge import card
from leakgauge.audit.judge.values import (
    Bound,
    Checkpoint,
    Defense,
    Finding,
    Kind,
    Line,
    Record,
    Replay,
    Thresholds,
    Treatment,
    Value,
)
from leakgauge.audit.judge.words import INCONCLUSIVE, Word, fails, severity, worst
from leakgauge.errors import ExitCode, LeakgaugeError
from leakgauge.meaning import PSNR, SSIM, Meaning
from leakgauge.storage import json_files
from leakgauge.storage.private import write
from leakgauge.storage.redaction import LEFT_OUT, coarse, discreet

FILE = "result.json"
OLDER = (SSIM, PSNR)
"""What results scored by before they said so themselves."""


class RunError(LeakgaugeError):
    """A run folder, or a result, that cannot be read."""


class Result(Value):
    """What an audit found. ``verdicts``, ``defenses``, ``records``, ``bounds`` and ``treatments`` are by the name of a
    defense, at the checkpoint that decides its word; ``checkpoints`` hold everything.

    >>> result = Result.load("leakgauge-run")        # doctest: +SKIP
    >>> result.verdicts                              # doctest: +SKIP
    {'none': 'recognisable', 'noisy': 'no evidence'}
    """

    version: Literal[1] = Field(default=1, alias="schema")
    spec: dict[str, Any]
    environment: dict[str, str] = Field(default_factory=dict)
    scope: str
    notes: tuple[str, ...] = ()
    domain: Kind = Kind()
    metric: str
    metrics: Annotated[tuple[Meaning, ...], Field(min_length=1)] = OLDER
    thresholds: Thresholds
    replay: Replay
    preflight: tuple[Finding, ...] = ()
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(min_length=1)]
    ledger: tuple[Line, ...] = ()
    faults: dict[str, str] = Field(default_factory=dict)

    @field_validator("metrics")
    @classmethod
    def _presentable(cls, metrics: tuple[Meaning, ...]) -> tuple[Meaning, ...]:
        if any(not 0 <= metric.digits <= 9 for metric in metrics):
            raise ValueError("digits must lie in 0..9")
        ends = (end for one in metrics for end in (one.threshold, one.exact, one.worst, one.best) if end is not None)
        if not all(map(math.isfinite, ends)):
            raise ValueError("the ends of a scale must be finite")
        return metrics

    # --- what it says

    @property
    def decisive(self) -> dict[str, tuple[Checkpoint, Defense]]:
        """Defense → the checkpoint with its worst word, and the defense there, in the order of the spec."""
        return {name: max(history, key=lambda at: severity(at[1].verdict)) for name, history in self.history.items()}

    @property
    def history(self) -> dict[str, list[tuple[Checkpoint, Defense]]]:
        """Defense → the same defense at every checkpoint."""
        history: dict[str, list[tuple[Checkpoint, Defense]]] = {}
        for checkpoint, defense in self.each():
            history.setdefault(defense.name, []).append((checkpoint, defense))
        return history

    def each(self) -> Iterator[tuple[Checkpoint, Defense]]:
        """Every defense at every checkpoint."""
        return ((checkpoint, defense) for checkpoint in self.checkpoints for defense in checkpoint.defenses)

    @property
    def defenses(self) -> dict[str, Defense]:
        return {name: defense for name, (_, defense) in self.decisive.items()}

    @property
    def verdicts(self) -> dict[str, Word]:
        """Defense → the worst word over all checkpoints."""
        return {name: defense.verdict for name, defense in self.defenses.items()}

    @property
    def records(self) -> dict[str, tuple[Record, ...]]:
        """Defense → its records: the recognised ones, then the most exposed, first."""
        return {name: defense.records for name, defense in self.defenses.items()}

    @property
    def bounds(self) -> dict[str, Bound | None]:
        return {name: defense.bound for name, defense in self.defenses.items()}

    @property
    def treatments(self) -> dict[str, dict[str, tuple[Treatment, ...]]]:
        """Defense → adversary → what it does about every nuisance."""
        return {name: {a.name: a.treatments for a in defense.adversaries} for name, defense in self.defenses.items()}

    @property
    def worst(self) -> Word:
        """The worst word of all."""
        return worst(self.verdicts.values())

    @property
    def judge(self) -> Meaning:
        """How the scores that verdicts are about are read."""
        return self.meaning(self.metric)

    def meaning(self, metric: str) -> Meaning:
        """How the scores of a metric are read."""
        plain = Meaning(metric, metric, metric, threshold=self.thresholds.recognisable or 0.0, worst=None, best=None)
        return next((meaning for meaning in self.metrics if meaning.name == metric), plain)

    # --- gates

    def failing(self, fail_on: Word) -> list[str]:
        """The defenses that fail a gate, a line each: at or above ``fail_on``, or not to be relied on."""
        return [f"{d.name}: {d.verdict}: {d.attack.why}" for _, d in self.each() if fails(d.verdict, fail_on)]

    def contradictions(self) -> list[str]:
        """The defenses whose bound an attack exceeded, a line each."""
        corridors = [(d.name, d.bound.corridor) for _, d in self.each() if d.bound and d.bound.corridor]
        return [f"{name}: {corridor.sentence}" for name, corridor in corridors if corridor.state == "contradiction"]

    def exit_code(self, fail_on: Word | None = None) -> ExitCode:
        """What the audit's command says to the shell, under a gate."""
        words = {defense.verdict for _, defense in self.each()}
        if "invalid" in words:
            return ExitCode.INVALID
        if self.contradictions():
            return ExitCode.CONTRADICTION
        if "incomplete" in words:
            return ExitCode.INCOMPLETE
        return ExitCode.GATE_FAILED if fail_on and self.failing(fail_on) else ExitCode.DONE

    @property
    def conclusive(self) -> bool:
        return not any(word in INCONCLUSIVE for word in self.verdicts.values())

    # --- files

    @classmethod
    def of_json(cls, raw: Any, *, where: str = FILE) -> Self:
        """A result from plain JSON values; a :class:`RunError` names what is wrong."""
        try:
            return cls.model_validate(raw)
        except ValidationError as fault:
            raise RunError(_wrong(fault), where=where, remedy="run the audit again with this version") from None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values, schema 1."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run folder, or its ``result.json``."""
        path = Path(path)
        file = path if path.is_file() else path / FILE
        if file.exists() and not file.is_file():  # reading a pipe or a device may never end
            raise RunError("is no regular file", where=str(file), remedy="run the audit again")
        try:
            raw = json_files.loads(json_files.content(file))
        except FileNotFoundError:
            what = f"has no {FILE}" if path.is_dir() else "there is no such file or folder"
            remedy = "name the --out folder of a finished `leakgauge audit`, or its result.json"
            raise RunError(what, where=str(path), remedy=remedy) from None
        except (OSError, ValueError, RecursionError) as fault:
            raise RunError(f"cannot be read ({fault})", where=str(file), remedy="run the audit again") from None
        return cls.of_json(raw, where=str(file))

    def save(self, path: str | Path) -> Path:
        """Write it, readable by its owner only, as a JSON file or into a folder; returns the file."""
        path = Path(path)
        file = path if path.suffix == ".json" and not path.is_dir() else path / FILE
        write(file, self.text().encode(errors="replace"))  # half a surrogate pair, in a result of somebody else's
        return file

    def text(self) -> str:
        """One text per result: sorted keys, shortest floats, no NaN."""
        return json.dumps(self.as_json(), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def redacted(self) -> Self:
        """The same without the labels of private records, with scores to two digits, and faults without messages."""
        raw = self.as_json()
        raw["faults"] = {cell: discreet(fault) for cell, fault in raw["faults"].items()}
        for checkpoint in raw["checkpoints"]:
            for defense in checkpoint["defenses"]:
                for key in ("attack", "encoding", "control", "adversaries", "records", "columns", "ablation"):
                    defense[key] = coarse(defense[key])
                defense["records"] = [{**record, "label": None} for record in defense["records"]]
                defense["faults"] = [discreet(fault) for fault in defense["faults"]]
                if defense["attack"]["verdict"] == "incomplete":
                    reason = next(iter(defense["faults"]), LEFT_OUT)
                    defense["attack"]["why"] = f"a planned cell failed: {reason}"
        return type(self).of_json(raw)

    def renumbered(self) -> Self:
        """The same with records that have random numbers, the same in all defenses, and name no row of a cell.

        Numbers of a plain run follow from the seed, and so do the labels, since classes take turns.
        """
        numbers = sorted({record.record for _, defense in self.each() for record in defense.records})
        number = dict(zip(numbers, SystemRandom().sample(numbers, len(numbers)), strict=True))
        raw = self.as_json()
        for defense in (defense for checkpoint in raw["checkpoints"] for defense in checkpoint["defenses"]):
            hidden = {"cell": "", "row": 0, "null_cell": "", "null_row": 0}
            rows = [{**row, **hidden, "record": number[row["record"]]} for row in defense["records"]]
            # equal ones stood in the order of their numbers
            defense["records"] = sorted(rows, key=lambda row: (_worst_first(row), row["record"]))
        return type(self).of_json(raw)

    # --- how it shows itself

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {word}' for name, word in self.verdicts.items())})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return card.html(self)


def _worst_first(row: Mapping[str, Any]) -> tuple[bool, float, float]:
    return (not row["recognised"], math.inf if row["exposure"] is None else row["exposure"], -row["score"])


def _wrong(fault: ValidationError) -> str:
    first, more = fault.errors()[0], fault.error_count() - 1
    key = ".".join(map(str, first["loc"])) or "the whole file"
    return f"{key}: {first['msg'].lower()}" + (f" (and {more} more)" if more else "")
