"""Protection: the one composition of defenses at the four stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Generator, Tensor, nn

from leakgauge.defenses.stages import Encoded, InputPart, ModelPart, TrainingPart
from leakgauge.defenses.update import Identity, UpdatePart
from leakgauge.errors import ExpressionError
from leakgauge.expr import parse
from leakgauge.types import Domain, Loss, Records, Release, Tree

STAGES = ("input", "model", "training", "update")


@dataclass(frozen=True)
class Protection:
    """What a client does to protect itself: parts at the input, model, training and update stage.

    ``mixup(k=4) | prune(p=0.9)`` builds one; the stages act in the order of their names here, whatever the
    order in which they were written. An empty stage does nothing.
    """

    input: tuple[InputPart, ...] = ()
    model: tuple[ModelPart, ...] = ()
    training: tuple[TrainingPart, ...] = ()
    update: UpdatePart = field(default_factory=Identity)

    def __post_init__(self) -> None:
        for stage in ("model", "training"):
            kinds = [type(part) for part in getattr(self, stage)]
            if twice := [part for part in getattr(self, stage) if kinds.count(type(part)) > 1]:
                where = " | ".join(map(repr, twice))
                raise ExpressionError(f"acts twice at the {stage} stage", where=where, remedy="keep one of them")

    @property
    def nuisances(self) -> tuple[str, ...]:
        """Everything random or hidden in it that is not the record."""
        early = (part for stage in STAGES[:3] for part in getattr(self, stage))
        return (*(name for part in early for name in part.nuisances), *self.update.nuisances)

    def __repr__(self) -> str:
        early = [part for stage in STAGES[:3] for part in getattr(self, stage)]
        late = [] if early and isinstance(self.update, Identity) else [self.update]
        return " | ".join(map(repr, [*early, *late]))

    def encode(self, pool: Records, rows: Tensor, *, generator: Generator) -> Encoded:
        """The input stage: the encodings of ``rows`` of a client's records, one part after the other."""
        if not self.input:
            return Encoded(pool.inputs[rows], pool.labels[rows], pool.domain)
        everyone, given, side = torch.arange(len(pool)), pool, {}
        encoded: Records | Encoded = given
        for i, part in enumerate(self.input):
            last = i == len(self.input) - 1
            encoded = part.encode(encoded, rows if last else everyone, generator=generator)
            drawn = encoded.side if last else {name: value[rows] for name, value in encoded.side.items()}
            side.update({f"{i}.{name}" if len(self.input) > 1 else name: value for name, value in drawn.items()})
        return Encoded(encoded.inputs, encoded.labels, pool.domain, side)

    def wrapped(self, model: nn.Module, domain: Domain) -> nn.Module:
        """The model stage: the network that is trained in place of ``model``."""
        return reduce(lambda made, part: part.wrap(made, domain), self.model, model)

    def loss(self, loss: Loss) -> Loss:
        """The model stage: the loss of the wrapped model's outputs; its last part added its term last."""
        return reduce(lambda made, part: part.loss(made), self.model, loss)

    def draw(self, model: nn.Module, batch: int, *, generator: Generator) -> dict[str, Tensor]:
        """The model stage: the random numbers of one pass, by the name of the buffer that takes them."""
        return {k: v for part in self.model for k, v in part.draw(model, batch, generator=generator).items()}

    def perturb(self, update: Tree, *, generator: Generator) -> Release:
        """The training stage: the update as the perturbed training makes it."""
        observed, side = dict(update), {}
        for part in self.training:
            out = part.perturb(observed, generator=generator)
            observed = out.observed
            side.update(out.side)
        return Release(observed, side)

    def __or__(self, other: Any) -> Protection:
        added = protection(other)
        update = self.update if isinstance(added.update, Identity) else self.update | added.update
        return Protection(
            self.input + added.input,
            self.model + added.model,
            self.training + added.training,
            added.update if isinstance(self.update, Identity) else update,
        )


def protection(how: Any) -> Protection:
    """A Protection from a part, a chain, an expression, or itself."""
    if isinstance(how, str):
        how = parse(how, "defense", where="defense")
    if isinstance(how, Protection):
        return how
    if isinstance(how, UpdatePart):
        return Protection(update=how)
    stage = getattr(how, "stage", None)
    if stage in STAGES[:3] and not isinstance(how, type):
        stages: dict[str, Any] = {stage: (how,)}
        return Protection(**stages)
    raise ExpressionError(f"{how!r} is not a defense", where="defense", remedy="see `leakgauge list defense`")
