"""The words of the design as types and Protocols. Nothing here computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from leakgauge.errors import DataError
from leakgauge.meaning import Meaning

Tree = Mapping[str, Tensor]
"""Named tensors: parameters, an update, an observed update, a mask."""

Side = Mapping[str, Tree]
"""The nuisances of a release by name (``mask``, ``threshold`` …); in a chain by ``<part>.<name>``."""

Kind = Literal["image", "table", "tokens"]
Labels = Literal["known", "inferred", "joint"]


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


@dataclass(frozen=True)
class Records:
    """Private examples ``(x, y)``: inputs ``[n, …]`` and labels ``[n]``, with their domain."""

    inputs: Tensor
    labels: Tensor
    domain: Domain

    def __post_init__(self) -> None:
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

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Sequence[int] | Tensor) -> Records:
        where = index if isinstance(index, slice | Tensor) else torch.as_tensor(index)
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


@dataclass(frozen=True)
class Release:
    """What an update-stage part lets out, and the nuisances it drew or computed."""

    observed: dict[str, Tensor]
    side: dict[str, Tree] = field(default_factory=dict)


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

    nuisances: tuple[str, ...]

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        """Draw what leaves the client."""

    def log_density(self, observed: Tree, update: Updates, *, side: Side) -> Tensor:
        """``log p(observed | update)`` of N candidates, ``[N]``; ``side`` holds what was granted."""


@dataclass(frozen=True)
class Candidate:
    """The adversary's current guess for N problems: inputs ``[N, B, …]``, labels ``[N, B]`` or
    ``[N, B, classes]`` (probabilities), and nuisances of the model stage, ``[N, B, …]`` by buffer name."""

    inputs: Tensor
    labels: Tensor
    nuisances: Tree = field(default_factory=dict)


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


@dataclass(frozen=True)
class Threat:
    """The adversary's capabilities: what is granted, and the server's power.

    ``grants`` names nuisances (``mask``, ``threshold``, ``norm``); ``labels`` says how y is known: granted, or
    withheld (``inferred``, ``joint``), and then the adversary's own ``labels`` says what it does about that.
    """

    grants: frozenset[str] = frozenset()
    labels: Labels = "known"
    server: Literal["honest", "active"] = "honest"

    def granted(self, side: Side) -> dict[str, Tree]:
        """The part of ``side`` that the adversary gets."""
        return {key: tree for key, tree in side.items() if key.rpartition(".")[2] in self.grants}

    def given(self, nuisances: Tree) -> dict[str, Tensor]:
        """The nuisances of the stages before the update's that the adversary gets."""
        return {key: value for key, value in nuisances.items() if key.rpartition(".")[2] in self.grants}


JSON = dict[str, Any]
