"""What defenses before the update stage share: they act on records, on the model, or on the training.

An input part encodes records, a model part changes the network and its loss, a training part changes the rates of
the local steps. Each is a frozen value; ``|`` composes it with parts of any stage into a Protection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Generator, Tensor, nn

from leakgauge.expr import REGISTRY, Part
from leakgauge.types import Domain, Loss, Nuisance, Records

if TYPE_CHECKING:
    from leakgauge.defenses.protection import Protection


@dataclass(frozen=True, repr=False)
class Encoded:
    """What an input part makes of records: inputs ``[b, …]``, labels ``[b]`` or ``[b, classes]``, and its nuisances.

    Every nuisance has one row per encoding. Where no part acts, these are the records themselves.
    """

    inputs: Tensor
    labels: Tensor
    domain: Domain
    drawn: Mapping[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Encoded({len(self)} of {self.domain}, {', '.join(self.drawn)})"

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice) -> Encoded:
        drawn = {name: value[rows] for name, value in self.drawn.items()}
        return Encoded(self.inputs[rows], self.labels[rows], self.domain, drawn)


class EarlyPart(Part):
    """A part of one of the first three stages. ``|`` makes a Protection with the next part, of whatever stage."""

    stage: ClassVar[str] = ""
    nuisances: ClassVar[tuple[Nuisance, ...]] = ()

    @classmethod
    def neutral(cls) -> Self | None:
        """The setting that changes nothing; None if there is none."""
        return None

    def __or__(self, other: Any) -> Protection:
        from leakgauge.defenses.protection import protection  # a Protection holds such parts

        whole: Protection = protection(self) | other
        return whole

    def __ror__(self, other: Any) -> Protection:
        from leakgauge.defenses.protection import protection

        whole: Protection = protection(other) | self
        return whole


class InputPart(EarlyPart):
    """``(x, y) ↦ encoding``, drawn anew in every round from a client's whole set of records."""

    stage: ClassVar[str] = "input"
    accuracy_caveat: ClassVar[str] = ""
    """What to keep in mind where accuracy is measured on records as they are, though it trained on encodings."""

    @property
    def mixing(self) -> Literal["solvable", "secret"] | None:
        """How records that it mixes can be told apart again; None if it mixes none.

        ``solvable``: from the encodings of several rounds alone; ``secret``: only by whoever knows, or finds out at a
        price, which records were mixed.
        """
        return None

    @property
    def lone(self) -> bool:
        """Whether an encoding still shows one record to the eye, and no other: who has it has seen the record."""
        return False

    def encode(self, pool: Records | Encoded, rows: Tensor, *, generator: Generator) -> Encoded:
        """The encodings of ``rows`` of the pool; the same generator gives the rows of one and the same round."""
        raise NotImplementedError

    def check(self, domain: Domain, records: int) -> None:
        """Refuse a domain or a number of records that it cannot encode."""


class ModelPart(EarlyPart):
    """A change of the network: it may add parameters, random numbers and a term of the loss."""

    stage: ClassVar[str] = "model"
    columns: ClassVar[int] = 0
    """Columns that it adds to the outputs, behind the scores of the classes: what its term of the loss needs."""

    def wrap(self, model: nn.Module, domain: Domain) -> nn.Module:
        """A copy of the model with the change; names of the user's parameters stay. A model that has it is kept."""
        raise NotImplementedError

    def loss(self, loss: Loss) -> Loss:
        """The loss of the changed model's outputs."""
        return loss

    def draw(self, model: nn.Module, batch: int, steps: int, *, generator: Generator) -> dict[str, Tensor]:
        """Its nuisances in one update, by bare name: ``[batch, …]``, or ``[batch, steps, …]`` of several steps."""
        return {}

    def buffers(self, model: nn.Module) -> dict[str, str]:
        """Nuisance → the name of the buffer that takes it."""
        return {}


class TrainingPart(EarlyPart):
    """A change of the rate of every local step."""

    stage: ClassVar[str] = "training"

    def draw(self, steps: int, *, generator: Generator) -> dict[str, Tensor]:
        """Its nuisances in one update, by bare name, ``[steps]``."""
        return {}

    def rates(self, rates: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """The rate of every local step, ``[…, steps]``, from what it would be without this part."""
        raise NotImplementedError

    def of_client(self, classes: int, mean_classes: float) -> Self:
        """The same part at a client with so many classes, where clients differ; the same for all by default."""
        return self


def of_stage(*stages: str) -> dict[str, type[Any]]:
    """The registered defenses of these stages by name: ``of_stage("input", "update")``."""
    parts = REGISTRY.get("defense", {}).items()
    return {name: part for name, part in parts if isinstance(part, type) and getattr(part, "stage", None) in stages}
