"""The words of the design as types and Protocols. Nothing here computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from leakgauge.errors import DataError
from leakgauge.meaning import Meaning
from leakgauge.threat import Knowledge as Knowledge
from leakgauge.threat import Labels as Labels
from leakgauge.threat import Threat as Threat
from leakgauge.threat import address_of as address_of
from leakgauge.threat import matching as matching

Tree = Mapping[str, Tensor]
"""Named tensors: parameters, an update, an observed update, a mask."""

Value = Tensor | Tree
"""The value of a nuisance: one tensor, or named tensors where it belongs to the entries of an update."""

Nuisances = Mapping[str, Value]
"""Nuisances by address: ``random_prune.mask``, ``recipe.learning_rate``; inside a part, by its own bare names."""

Known = Mapping[str, Tree]
"""What an adversary knows of the update stage: granted, or read off the release."""

Per = Literal["entry", "tensor", "example", "step", "update"]


class Law(Protocol):
    """How a hidden number is drawn and how likely a guess at it is, entry by entry (see :mod:`leakgauge.laws`)."""

    @property
    def mean(self) -> float: ...

    @property
    def support(self) -> tuple[float, float]: ...

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor: ...

    def log_density(self, value: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Nuisance:
    """Something random or hidden that is not the record, declared by the recipe or by a part.

    ``per`` says what it belongs to; ``law`` is its sampler and log density, or None where it is not known;
    ``visible`` reads it off what the part released, ``[M, …]`` per observation, or None where nobody can.
    """

    name: str
    per: Per
    law: Law | None = None
    visible: Callable[[Tree], Tree] | None = field(default=None, compare=False, repr=False)


How = Literal["granted", "read off", "cancelled", "summed out", "optimised", "enumerated", "assumed"]


@dataclass(frozen=True)
class Treatment:
    """What an adversary does about one nuisance, by address, and a sentence for the ledger."""

    address: str
    how: How
    sentence: str

    def __str__(self) -> str:
        return f"{self.address}: {self.sentence}"

    def as_json(self) -> dict[str, str]:
        return {"address": self.address, "how": self.how, "sentence": self.sentence}


def own_of(nuisances: Nuisances, label: str) -> dict[str, Any]:
    """The nuisances of one part, by their bare names."""
    prefix = f"{label}."
    return {address.removeprefix(prefix): value for address, value in nuisances.items() if address.startswith(prefix)}


Kind = Literal["image", "table", "tokens"]


@dataclass(frozen=True)
class Feature:
    """One feature of a table: a number in one column, or a category in a block of one-hot columns.

    ``spread`` is the standard deviation of a number over reference records, in the unit of the inputs: tolerances are
    relative to it. ``offset + unit · x`` is the number in the unit of its source, for people to read.
    """

    name: str
    categories: tuple[str, ...] = ()
    spread: float = 1.0
    offset: float = 0.0
    unit: float = 1.0

    @property
    def width(self) -> int:
        """The number of columns it takes."""
        return len(self.categories) or 1

    @property
    def varies(self) -> bool:
        """A feature that never varies is known without any update, and counts in no score."""
        return len(self.categories) > 1 if self.categories else self.spread > 0


@dataclass(frozen=True)
class Domain:
    """What kind of thing a record is: its kind, the shape of x, the number of classes, and the features of a table.

    Images live in [0, 1] at every API edge; tables and tokens have no box. ``features`` are in the order of the
    columns, which they fill without a gap; without them every column of a table is a number of spread 1.
    """

    kind: Kind
    shape: tuple[int, ...]
    classes: int
    features: tuple[Feature, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.features:
            return
        columns = sum(feature.width for feature in self.features)
        if self.kind != "table" or self.shape != (columns,):
            raise DataError(
                f"features of {columns} columns do not describe a {self.kind} record of shape {self.shape}",
                where="Domain",
                remedy="give the features of a table in the order of its columns, one-hot blocks as one feature",
            )

    @property
    def box(self) -> tuple[float, float] | None:
        return (0.0, 1.0) if self.kind == "image" else None

    @property
    def size(self) -> int:
        """The number of unknown entries of one x."""
        return int(torch.Size(self.shape).numel())


@dataclass(frozen=True, repr=False)
class Records:
    """Private examples ``(x, y)``: inputs ``[n, …]`` and labels ``[n]``, with their domain."""

    inputs: Tensor
    labels: Tensor
    domain: Domain

    def __post_init__(self) -> None:
        self._check_types()
        if len(self.inputs) != len(self.labels):
            raise DataError(
                f"{len(self.inputs)} inputs but {len(self.labels)} labels",
                where="Records",
                remedy="give one label per input",
            )
        if tuple(self.inputs.shape[1:]) != self.domain.shape:
            raise DataError(
                f"inputs have shape {tuple(self.inputs.shape[1:])}, the domain says {self.domain.shape}",
                where="Records",
                remedy="give inputs as [n, *domain.shape]",
            )
        if len(self.labels) and not (int(self.labels.min()) >= 0 and int(self.labels.max()) < self.domain.classes):
            raise DataError(
                f"labels span {int(self.labels.min())}..{int(self.labels.max())}",
                where="Records",
                remedy=f"labels must lie in 0..{self.domain.classes - 1}",
            )

    def _check_types(self) -> None:
        """Tensors, of which the labels are classes: mixtures of them are an input stage's, never a record's."""
        for name, value in (("inputs", self.inputs), ("labels", self.labels)):
            if not isinstance(value, Tensor):
                what, remedy = f"{name} are a {type(value).__name__}", f"give torch.as_tensor({name})"
                raise DataError(what, where="Records", remedy=remedy)
        if not isinstance(self.domain, Domain):
            what, remedy = f"the domain is a {type(self.domain).__name__}", 'give a Domain("image", shape, classes)'
            raise DataError(what, where="Records", remedy=remedy)
        kind = self.labels.dtype
        if self.labels.dim() != 1 or kind.is_floating_point or kind.is_complex or kind == torch.bool:
            what = f"labels are {kind} of shape {tuple(self.labels.shape)}"
            raise DataError(what, where="Records", remedy="give one class number per input, as integers")

    def __repr__(self) -> str:
        return f"Records({len(self)} of {self.domain})"

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Records:
        """The records of these places; a single place gives records, too: one of them."""
        where = index if isinstance(index, slice) else torch.atleast_1d(torch.as_tensor(index))
        if isinstance(where, Tensor) and not len(where):
            where = where.long()  # an empty list becomes a tensor of floats, which is no index
        return Records(self.inputs[where], self.labels[where], self.domain)

    def batches(self, size: int) -> Iterator[Records]:
        """Consecutive groups of ``size`` records; a smaller remainder is left out."""
        for start in range(0, len(self) - size + 1, size):
            yield self[start : start + size]


class Loss(Protocol):
    """One value per example: ``(outputs [B, …], labels [B] or [B, classes]) → [B]``."""

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor: ...


class Context(Protocol):
    """What an update-stage defense may ask of the client, without importing models."""

    def inputs(self) -> Tensor:
        """The batch's inputs as the model gets them, ``[B, …]``."""

    def per_example(self) -> Tree:
        """The update of every example of the batch alone, ``[B, …]``."""

    def combined(self, each: Tree) -> Tree:
        """One update from those of the examples ``[B, …]``: their mean, or their sum, as the client trains."""

    def representation(self, layer: str) -> Tensor:
        """The input of ``layer`` for the batch, ``[B, features]``."""

    def representation_of(self, layer: str) -> Callable[[Tensor], Tensor]:
        """The map from the batch's inputs to ``representation(layer)``, for jvp and vjp."""


@dataclass(frozen=True, repr=False)
class Release:
    """What an update-stage part lets out, and the nuisances it drew or computed, by their bare names."""

    observed: dict[str, Tensor]
    drawn: dict[str, Tree] = field(default_factory=dict)

    def __repr__(self) -> str:
        drawn = "".join(f", {name}={sized(value)}" for name, value in self.drawn.items())
        return f"Release(observed={sized(self.observed)}{drawn})"


class Updates(Protocol):
    """The updates of N candidates, tensor by tensor, without saying how they are stored.

    Likelihoods are written in these verbs, so that they read the same for materialised updates and
    for the ghost path, which never forms them. ``observed`` and ``others`` are trees ``[M, …]``,
    one row per observation; each of the N candidates knows the row it belongs to.
    Everything returned is per candidate and per tensor, ``[N, L]``, in the order of ``names``.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """The entries of each tensor."""

    def square(self) -> Tensor:
        """``‖u‖²``."""

    def dot(self, observed: Tree) -> Tensor:
        """``⟨u, o⟩``."""

    def received(self, observed: Tree) -> Tensor:
        """``‖o‖²``."""

    def distance(self, observed: Tree) -> Tensor:
        """``‖u − o‖²``, from the residual itself (no cancellation)."""

    def entries(self, fn: Callable[..., Tensor], *others: Tree) -> Tensor:
        """``Σ fn(u_e, other_e, …)`` over the entries of each tensor."""

    def scaled(self, factor: Tensor) -> Updates:
        """``s·u`` with ``s`` of shape ``[N]`` or ``[N, L]``."""

    def mapped(self, fn: Callable[..., Tensor], *others: Tree) -> Updates:
        """``fn(u_e, other_e, …)`` entry by entry."""

    def each(self, fn: Callable[[Updates], Updates]) -> Updates:
        """``fn`` of the update of every example alone, put together as the client puts them together."""

    def only(self, names: Sequence[str]) -> Updates:
        """The same updates with the other tensors left out."""


@runtime_checkable
class Mechanism(Protocol):
    """An update-stage part: a frozen value with two verbs."""

    @property
    def nuisances(self) -> tuple[Nuisance, ...]: ...

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        """Draw what leaves the client."""

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        """``log p(observed | update)`` of N candidates, ``[N]``; ``known`` holds what is granted or was read off."""


@dataclass(frozen=True, repr=False)
class Candidate:
    """The adversary's current guess for N problems.

    Inputs ``[N, B, …]``, labels ``[N, B]`` or ``[N, B, classes]`` (probabilities), and the nuisances it assumes, by
    address, ``[N, …]``. ``look`` runs the model once more where somebody asks for features or batch statistics.
    ``places [N]`` says which of the observations each problem attacks.
    ``codes`` ``[N, B, …]`` are what a generator drew the inputs from, if one did.
    """

    inputs: Tensor
    labels: Tensor
    nuisances: Nuisances = field(default_factory=dict)
    look: Callable[[Candidate], Seen] | None = field(default=None, compare=False)
    places: Tensor | None = field(default=None, compare=False)
    codes: Tensor | None = field(default=None, compare=False)

    @cached_property
    def _seen(self) -> Seen:
        if self.look is None:
            raise DataError(
                "nobody said which model its features are of",
                where="Candidate",
                remedy="use a prior on features inside an attack",
            )
        return self.look(self)

    @property
    def features(self) -> Tree:
        """The input of every layer, ``[N, B, …]``."""
        return self._seen.features

    @property
    def statistics(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Mean and variance per channel of what each normalisation over a batch gets, ``[N, C]`` each."""
        return self._seen.statistics

    @property
    def expected(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """What the adversary takes the statistics to be: known ones, else the running ones; ``[N, C]`` or ``[C]``."""
        return self._seen.expected

    def __repr__(self) -> str:
        return f"Candidate(inputs={sized(self.inputs)}, labels={sized(self.labels)}, {', '.join(self.nuisances)})"


@dataclass(frozen=True, repr=False)
class Seen:
    """What one pass of the model over candidates shows."""

    features: Tree
    statistics: Mapping[str, tuple[Tensor, Tensor]]
    expected: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


def sized(value: Value) -> str:
    """A tensor or tree in a few words: reprs never print the numbers of a record."""
    if isinstance(value, Tensor):
        return f"<{str(value.dtype).removeprefix('torch.')} {list(value.shape)}>"
    return f"<{len(value)} tensors, {sum(v.numel() for v in value.values())} entries>"


class Prior(Protocol):
    """``log p(x)`` up to a constant, ``[N]``; higher is likelier."""

    def __call__(self, candidate: Candidate) -> Tensor: ...


class Metric(Protocol):
    """How near a reconstruction is to a record of its domain; ``meaning`` says how its scores are read."""

    @property
    def meaning(self) -> Meaning: ...

    def on(self, domain: Domain) -> Metric:
        """The same metric, knowing the domain; a DomainError where it does not apply."""

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        """One score per record, ``[n, *shape]`` and ``[n, *shape]`` → ``[n]``; never NaN."""

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        """Every reconstruction against every original, ``[m, *shape]`` and ``[n, *shape]`` → ``[m, n]``."""


class Progress(Protocol):
    """Called by long work: how far it is, and the current best objective (lower is better)."""

    def __call__(self, done: int, total: int, best: float) -> None: ...
