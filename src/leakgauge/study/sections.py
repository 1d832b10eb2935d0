"""The sections of a spec: the text of a study as one validated model.

Numbers and words are checked here, expressions in :mod:`leakgauge.study.draft`; nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from leakgauge.errors import LeakgaugeError

Attacks = Literal["generic", "adaptive"]
BOTH: dict[Attacks, str] = {"generic": "inverting_gradients()", "adaptive": "standard()"}
"""The two adversaries that every audit runs, as they are added where a spec lists none of that kind."""
ADDED = "{} (added)"
TEXT, LIST = "<text>", "<list>"
"""What pydantic calls the two forms of an adversary; no key of a spec."""
Settings = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[list[str], Tag(LIST)],
    Discriminator(lambda value: LIST if isinstance(value, list) else TEXT),
]
"""One expression, or a list of them that is tuned."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a spec: where it stands, what it is, how to mend it."""

    file: str
    key: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.what}; {self.remedy}"


class SpecError(LeakgaugeError):
    """A spec that cannot be run, with all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Normalise(_Section):
    """Mean and standard deviation per channel, applied inside the model."""

    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]


class Replay(_Section):
    """What the user's real client did: weights before and after, and the batch it used.

    ``defense`` names the one of ``[defenses]`` that it used; by default all of them and none are tried.
    """

    before: str
    after: str
    batch: str
    defense: str | None = None


class RecipeSpec(_Section):
    """How a client trains (see :class:`leakgauge.Recipe`)."""

    batch: Annotated[int, Field(ge=1)] = 1
    local_steps: Annotated[int, Field(ge=1, le=10_000)] = 1
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    mode: Literal["train", "eval"] = "eval"
    reduction: Literal["mean", "sum"] = "mean"
    shares: Literal["gradient", "change"] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    minibatch: Annotated[int, Field(ge=1)] | None = None
    optimiser: Literal["sgd", "adam"] = "sgd"
    shuffle: bool = False
    clients: Annotated[int, Field(ge=1)] = 1
    shares_buffers: bool = False


class TaskSpec(_Section):
    """The user's client: model, weights, loss, data, recipe.

    ``records`` updates are reported. ``rounds``: in how many rounds each of them is observed, at the same weights.
    ``client_records``: how many records one client holds, where a defense mixes a client's records; all by default.
    ``class_counts``: how many records of each of its classes a batch has, ``[5, 1, 1, 1]`` of a batch of 8; which
    classes these are changes from update to update. By default batches are as balanced as can be.
    """

    model: str
    weights: str | None = None
    loss: str = "cross_entropy"
    data: str = "fashion_mnist_sample"
    normalise: Normalise | None = None
    records: Annotated[int, Field(ge=1)] = 20
    rounds: Annotated[int, Field(ge=1, le=1_000)] = 1
    client_records: Annotated[int, Field(ge=1)] | None = None
    class_counts: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] | None = None
    recipe: RecipeSpec = RecipeSpec()
    replay: Replay | None = None


class Checkpoints(_Section):
    """Steps of training at which the client is audited; 0 is the model as given.

    Training is plain SGD on the train split. ``defended`` trains once per defense, with it, so that its price in
    accuracy is known; else one training without a defense serves all. ``seeds`` trainings of each show how much of a
    difference is chance; the first of them is attacked.
    """

    train_steps: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0]
    batch: Annotated[int, Field(ge=1)] = 64
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    defended: bool = False
    seeds: Annotated[int, Field(ge=1, le=1000)] = 1


class Tuning(_Section):
    """Updates of reference records on which the best of several settings of an adversary is chosen."""

    records: Annotated[int, Field(ge=1)] = 8


class ThreatSpec(_Section):
    """What the adversary knows: how labels are known, and which nuisances are granted."""

    labels: Literal["known", "inferred", "joint"] = "known"
    grants: list[str] = []
    learning_rate: Literal["known", "unknown"] = "known"


class BoundSpec(_Section):
    """What bounds are about: the rounds in which the same records take part (by default ``task.rounds``), and δ."""

    rounds: Annotated[int, Field(ge=1)] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class PriceSpec(_Section):
    """What the price of a record is about where clients mix records: how many one holds, and for how many epochs."""

    records: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[int, Field(ge=1)] = 50


class VerdictSpec(_Section):
    """How verdicts are reached.

    ``recognisable`` is the leak threshold, by metric: a reconstruction at least this good counts as recognisable.
    Without one the domain's metric judges at its own threshold; ``exact`` is in the unit of the metric that tells what
    is exact. ``also`` names metrics that are measured and shown beside the judge, such as ``"lpips()"``.
    """

    recognisable: dict[str, Annotated[float, Field(gt=0)]] = {}
    exact: Annotated[float, Field(gt=0)] | None = None
    also: list[str] = []
    significance: Annotated[float, Field(gt=0, lt=1)] = 0.05


class Spec(_Section):
    """A whole audit, as it is written; :class:`~leakgauge.study.draft.Draft` adds the adversaries it lacks."""

    leave_out: list[Attacks] = []
    task: TaskSpec
    checkpoints: Checkpoints = Checkpoints()
    defenses: dict[str, str] = {"none": "identity()"}
    adversaries: dict[str, Settings] = {}
    tuning: Tuning = Tuning()
    threat: ThreatSpec = ThreatSpec()
    verdict: VerdictSpec = VerdictSpec()
    bound: BoundSpec = BoundSpec()
    price: PriceSpec = PriceSpec()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    def settings(self, adversary: str) -> list[str]:
        """The expressions of an adversary: several are tuned, per defense, on reference records."""
        texts = self.adversaries[adversary]
        return [texts] if isinstance(texts, str) else list(texts)

    def notes(self) -> list[str]:
        """What a reader of the audit has to know about who attacked."""
        added = [name for name in self.adversaries if name in map(ADDED.format, BOTH)]
        sentences = [f"{name}: {self.adversaries[name]}, since the spec lists no such adversary" for name in added]
        return [*sentences, *(f"LEFT OUT: the {kind} attack. {_UNTESTED[kind]}" for kind in self.leave_out)]


_UNTESTED: dict[Attacks, str] = {
    "generic": "Whether an adversary who ignores the defense succeeds was not tried",
    "adaptive": "No adversary modelled the defense: a verdict says little about one who does",
}
