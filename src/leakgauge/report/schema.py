"""What a report reads of ``result.json``, schema 1: typed, checked, and blind to what it does not know.

Unknown keys are ignored, so that a newer audit can still be shown; a missing or mistyped one is an error that names it.
The producer and the whole schema are in :mod:`leakgauge.audit.judge.result` and ``docs/reference/result.md``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Word = Literal["exact", "recognisable", "detectable", "no evidence", "too weak", "incomplete", "invalid"]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Value(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class Excess(_Value):
    """Mean gain over the null with its interval; ``p`` is one-sided and not yet corrected."""

    mean: Finite
    low: Finite
    high: Finite
    p: Finite
    n: int


class Rate(_Value):
    """The share of records above what a share ``false_positives`` of null scores exceeds."""

    rate: Finite
    threshold: Finite
    false_positives: Finite


class Attack(_Value):
    """What was found by attacking: a word, and the sentence why."""

    verdict: Word
    why: str
    p: Finite | None = None
    excess: Excess | None = None
    nulls: dict[str, Excess] = {}
    single: Finite | None = None
    recognised: int | None = None
    rate: Rate | None = None


class Encoding(_Value):
    """Scores against what the client trained on: encodings of its records; ``p`` is corrected."""

    called: str
    lone: bool
    recognised: int
    records: int
    mean: Finite
    best: Finite
    p: Finite
    excess: Excess


class Figure(_Value):
    """A proven number, or None, and what it says."""

    value: Finite | None = None
    sentence: str = ""


class Corridor(_Value):
    """What the best single adversary reached below the ceiling, and how the two stand to each other."""

    success: Finite
    low: Finite
    high: Finite
    state: Literal["open", "tight", "contradiction", "no bound"]
    sentence: str


class Enough(_Value):
    """The least noise of this kind that proves a ceiling."""

    expression: str
    ceiling: Finite


class Bound(_Value):
    """What was proven: a ceiling on the probability of success at the leak threshold, or None with the reason."""

    ceiling: Finite | None = None
    why: str = ""
    assumptions: tuple[str, ...] = ()
    unit: str | None = None
    log_capacity: Figure | None = None
    epsilon: Figure | None = None
    corridor: Corridor | None = None
    enough: Enough | None = None


class EncodingRow(_Value):
    """The best score against one record's encoding, and the cell that holds the picture."""

    score: Finite
    null: Finite
    adversary: str = ""
    cell: str = ""


class Row(_Value):
    """One record under one defense, and where its pictures are."""

    record: Annotated[int, Field(ge=0)]
    label: int | None = None
    score: Finite
    psnr: Finite | None = None
    null: Finite
    prior: Finite | None = None
    exposure: Finite | None = None
    adversary: str = ""
    cell: str = ""
    row: Annotated[int, Field(ge=0)] = 0
    null_cell: str = ""
    null_row: Annotated[int, Field(ge=0)] = 0
    encoding: EncodingRow | None = None


class Adversary(_Value):
    """An adversary by name; its scores stay in ``result.json``."""

    name: str
    expression: str = ""
    labels: int | None = None
    evaluations: int | None = None
    mean: Finite | None = None
    encoding: Finite | None = None


class Alone(_Value):
    """One adversary by itself, without a defense."""

    p: Finite
    recognised: int
    works: bool


class Control(_Value):
    """The undefended update of the same records: do the adversaries work at all, together and each by itself?"""

    mean: Finite
    low: Finite
    high: Finite
    p: Finite
    recognised: int = 0
    adversaries: dict[str, Alone] = {}


class Grant(_Value):
    """What a grant was worth: the mean loss of score without it."""

    grant: str
    mean: Finite
    low: Finite
    high: Finite


class Defense(_Value):
    """One defense at one checkpoint."""

    name: str
    expression: str
    attack: Attack
    encoding: Encoding | None = None
    control: Control | None = None
    bound: Bound | None = None
    adversaries: tuple[Adversary, ...] = ()
    records: tuple[Row, ...] = ()
    ablation: tuple[Grant, ...] = ()
    faults: tuple[str, ...] = ()
    accuracy: Finite | None = None
    accuracies: tuple[Finite, ...] = ()


class Checkpoint(_Value):
    """The client at one moment of training."""

    step: int
    accuracy: Finite | None = None
    accuracies: tuple[Finite, ...] = ()
    defenses: tuple[Defense, ...]


class Thresholds(_Value):
    """What the words were measured against."""

    metric: str
    recognisable: Finite | None = None
    exact: Finite
    significance: Finite


class Replay(_Value):
    """Does our client replay the user's?"""

    status: str
    sentence: str


class Finding(_Value):
    """A leak by structure, found before any attack."""

    name: str
    severity: str
    sentence: str


class Line(_Value):
    """One line of the ledger."""

    number: str
    assumes: str


class Result(_Value):
    """A whole result."""

    version: Literal[1] = Field(alias="schema")
    spec: dict[str, Any]
    environment: dict[str, str] = {}
    scope: str
    notes: tuple[str, ...] = ()
    metric: str
    thresholds: Thresholds
    replay: Replay
    preflight: tuple[Finding, ...] = ()
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(min_length=1)]
    ledger: tuple[Line, ...] = ()
    faults: dict[str, str] = {}
