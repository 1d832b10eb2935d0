"""The values inside a :class:`~leakgauge.audit.judge.model.Result`: typed, checked, and free of torch.

Unknown keys are ignored, so that a result of a newer version can still be shown; a missing or mistyped one is an error
that names it. ``docs/reference/result.md`` says what every key means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from leakgauge.audit.judge.words import Word

Finite = Annotated[float, Field(allow_inf_nan=False)]
Row = Annotated[int, Field(ge=0)]
UNDEFENDED = "identity()"
"""The expression of the client without a defense."""


class Value(BaseModel):
    """A frozen value that ignores what it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class Interval(Value):
    """A mean with its 95 % interval over ``n`` updates; one update has no interval."""

    mean: Finite
    low: Finite | None = None
    high: Finite | None = None
    n: int | None = None


class Excess(Interval):
    """Mean gain over the null; ``p`` is one-sided and not yet corrected."""

    p: Finite


class Rate(Value):
    """The share of records above what a share ``false_positives`` of null scores exceeds."""

    rate: Finite
    threshold: Finite
    false_positives: Finite


class Attack(Value):
    """What was found by attacking: a word, and the sentence why. ``p`` is corrected for all comparisons."""

    verdict: Word
    why: str
    p: Finite | None = None
    excess: Excess | None = None
    nulls: dict[str, Excess] = {}
    single: Finite | None = None
    recognised: int | None = None
    rate: Rate | None = None


class Encoding(Value):
    """Scores against what the client trained on: encodings of its records; ``p`` is corrected."""

    called: str
    lone: bool
    recognised: int
    records: int
    mean: Finite
    best: Finite
    p: Finite
    excess: Excess


class Figure(Value):
    """A proven number, or None, and what it says."""

    value: Finite | None = None
    sentence: str = ""


class Corridor(Value):
    """What the best single adversary reached below the ceiling, and how the two stand to each other."""

    success: Finite
    low: Finite
    high: Finite
    risk: Finite | None = None
    state: Literal["open", "tight", "contradiction", "no bound"]
    sentence: str


class Enough(Value):
    """The least noise of this kind that proves a ceiling."""

    expression: str
    ceiling: Finite


class Bound(Value):
    """What was proven: a ceiling on the probability of success at the leak threshold, or None with the reason."""

    ceiling: Finite | None = None
    why: str = ""
    assumptions: tuple[str, ...] = ()
    unit: str | None = None
    rounds: int | None = None
    log_capacity: Figure | None = None
    epsilon: Figure | None = None
    corridor: Corridor | None = None
    enough: Enough | None = None


class EncodingRow(Value):
    """The best score against one record's encoding, and the cell that holds it."""

    score: Finite
    null: Finite
    adversary: str = ""
    cell: str = ""


class Record(Value):
    """One record under one defense, and where its reconstruction and its null are.

    ``score`` and ``null`` are in the metric that judges, ``scores`` the best over the adversaries in every metric;
    ``recognised``: it reaches the threshold and beats every null.
    """

    record: Row
    label: int | None = None
    score: Finite
    scores: dict[str, Finite] = {}
    null: Finite
    prior: Finite | None = None
    recognised: bool = False
    exposure: Finite | None = None
    adversary: str = ""
    cell: str = ""
    row: Row = 0
    null_cell: str = ""
    null_row: Row = 0
    encoding: EncodingRow | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def psnr(self) -> float | None:
        """Of an image: schema 1 has it under this name, too."""
        return self.scores.get("psnr")

    @model_validator(mode="before")
    @classmethod
    def _older(cls, raw: Any) -> Any:
        """Older results had no ``scores``."""
        if isinstance(raw, Mapping) and "scores" not in raw and raw.get("psnr") is not None:
            return {**raw, "scores": {"psnr": raw["psnr"]}}
        return raw


class Treatment(Value):
    """What an adversary does about one nuisance: ``recipe.learning_rate``, ``cancelled``, and the sentence."""

    address: str
    how: str
    sentence: str = ""

    def __str__(self) -> str:
        return f"{self.address}: {self.sentence or self.how}"


class Adversary(Value):
    """An adversary against one defense. ``scores``: arm → metric → one number per record.

    ``labels`` counts the records whose own label came with their reconstruction; ``label_share`` is the share of the
    labels that is right whoever they belong to: low where labels were inferred wrongly, or the updates say too little.
    ``tuned`` says how its settings were chosen, on records that are not reported; empty where none were.
    """

    name: str
    expression: str = ""
    scores: dict[str, dict[str, tuple[Finite, ...]]] = {}
    labels: int | None = None
    label_share: Finite | None = None
    evaluations: int | None = None
    mean: Finite | None = None
    encoding: Finite | None = None
    assumed: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    treatments: tuple[Treatment, ...] = ()


class Alone(Value):
    """One adversary by itself, without a defense."""

    p: Finite
    recognised: int
    works: bool


class Control(Interval):
    """The undefended update of the same records: do the adversaries work at all, together and each by itself?"""

    p: Finite
    recognised: int = 0
    records: int | None = None
    adversaries: dict[str, Alone] = {}


class Grant(Interval):
    """What a grant was worth: the mean loss of score without it.

    ``labels`` is the share of labels that the best adversary had right without it.
    """

    grant: str
    labels: Finite | None = None


class Part(Value):
    """What analyses ask a defense's part: its stage, and how records that it mixed can be told apart again.

    ``solvable``: from several rounds of updates alone; ``secret``: only by whoever knows, or finds out at a price,
    which records were mixed; None: it does not mix records.
    """

    expression: str
    stage: Literal["input", "model", "training", "update"]
    mixing: Literal["solvable", "secret"] | None = None


class Column(Value):
    """One feature of a table: the share of records in which it was right, in the reconstruction and in the null.

    ``error`` is the median error of the reconstruction, in standard deviations of the feature; None for a category.
    """

    name: str
    right: Finite
    null: Finite
    error: Finite | None = None


class Defense(Value):
    """One defense at one checkpoint."""

    name: str
    expression: str
    bare: bool
    parts: tuple[Part, ...] = ()
    attack: Attack
    encoding: Encoding | None = None
    control: Control | None = None
    bound: Bound | None = None
    adversaries: tuple[Adversary, ...] = ()
    records: tuple[Record, ...] = ()
    columns: tuple[Column, ...] = ()
    ablation: tuple[Grant, ...] = ()
    faults: tuple[str, ...] = ()
    accuracy: Finite | None = None
    accuracies: tuple[Finite, ...] = ()

    @property
    def verdict(self) -> Word:
        return self.attack.verdict

    @model_validator(mode="before")
    @classmethod
    def _older(cls, raw: Any) -> Any:
        """Older results say by the expression alone that there is no defense."""
        if isinstance(raw, Mapping) and "bare" not in raw:
            return {**raw, "bare": raw.get("expression") == UNDEFENDED}
        return raw


class Checkpoint(Value):
    """The client at one moment of training."""

    step: int
    accuracy: Finite | None = None
    accuracies: tuple[Finite, ...] = ()
    defenses: tuple[Defense, ...]


class Thresholds(Value):
    """What the words were measured against: ``recognisable`` in ``metric``, ``exact`` in ``exactness``."""

    metric: str
    recognisable: Finite | None = None
    exact: Finite
    exactness: str = "psnr"
    significance: Finite


class Replay(Value):
    """Does our client replay the user's?"""

    status: str
    sentence: str


class Finding(Value):
    """A leak by structure, found before any attack."""

    name: str
    severity: str
    sentence: str


class Line(Value):
    """One line of the ledger: a number, and what it assumes."""

    number: str
    assumes: str


class Feature(Value):
    """One feature of a table: a number, or a category in one-hot columns (see :class:`leakgauge.types.Feature`)."""

    name: str
    categories: tuple[str, ...] = ()
    spread: Finite = 1.0
    offset: Finite = 0.0
    unit: Finite = 1.0


class Kind(Value):
    """What kind of thing a record is; of a table also its features, and the ``tolerance`` within which a number is
    right, in standard deviations."""

    kind: str = "image"
    shape: tuple[int, ...] = ()
    classes: int | None = None
    features: tuple[Feature, ...] = ()
    tolerance: Finite | None = None
