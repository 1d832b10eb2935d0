"""Protection: the one composition of defenses at the four stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Generator, Tensor, nn

from leakgauge.defenses.stages import EarlyPart, Encoded, InputPart, ModelPart, TrainingPart
from leakgauge.defenses.update import Chain, Identity, UpdatePart, parts_of
from leakgauge.errors import ExpressionError
from leakgauge.expr import labelled, parse
from leakgauge.threat import RECIPE
from leakgauge.types import Domain, Loss, Nuisance, Nuisances, Records, Value, own_of

STAGES = ("input", "model", "training", "update")


@dataclass(frozen=True)
class Protection:
    """What a client does to protect itself: parts at the input, model, training and update stage.

    ``mixup(k=4) | prune(p=0.9)`` builds one; the stages act in the order of their names here, whatever the
    order in which they were written. An empty stage does nothing. Every nuisance has one address, ``part.name``
    (:attr:`nuisances`), alone or in a chain; the second of two equal parts is ``part#2``.
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
        self._check_labels()

    def _check_labels(self) -> None:
        """Addresses begin with a part's label, which no other stage and not the recipe may have."""
        labels = [RECIPE, *(label for stage in STAGES[:3] for label in self.stage(stage)), *self.chain.labelled]
        if twice := [label for i, label in enumerate(labels) if label in labels[:i]]:
            taken = "the recipe" if twice[0] == RECIPE else "a part of another stage"
            raise ExpressionError(
                f"its class {twice[0]!r} has the name of {taken}, so that addresses would mean two things",
                where=repr(self),
                remedy="rename the class",
            )

    @cached_property
    def chain(self) -> Chain:
        """The update stage as a chain, also where it is a single part."""
        return Chain(parts_of(self.update))

    def stage(self, name: str) -> dict[str, EarlyPart]:
        """The parts of one of the first three stages, by label."""
        return labelled(getattr(self, name))

    @property
    def parts(self) -> dict[str, EarlyPart | UpdatePart]:
        """Every part by its label, in the order in which they act."""
        early = {label: part for stage in STAGES[:3] for label, part in self.stage(stage).items()}
        return {**early, **self.chain.labelled}

    @property
    def nuisances(self) -> dict[str, Nuisance]:
        """Everything random or hidden in it that is not the record, by address."""
        return {f"{label}.{n.name}": n for label, part in self.parts.items() for n in part.nuisances}

    def __repr__(self) -> str:
        early = [part for stage in STAGES[:3] for part in getattr(self, stage)]
        late = [] if early and isinstance(self.update, Identity) else [self.update]
        return " | ".join(map(repr, [*early, *late]))

    def encode(self, pool: Records, rows: Tensor, *, generator: Generator) -> Encoded:
        """The input stage: the encodings of ``rows`` of a client's records, one part after the other."""
        if not self.input:
            return Encoded(pool.inputs[rows], pool.labels[rows], pool.domain)
        everyone, drawn = torch.arange(len(pool)), dict[str, Tensor]()
        before: Records | Encoded = pool
        for i, (label, part) in enumerate(self.stage("input").items()):
            last = i == len(self.input) - 1
            encoded: Encoded = part.encode(before, rows if last else everyone, generator=generator)  # type: ignore[attr-defined]
            drawn |= {f"{label}.{n}": v if last else v[rows] for n, v in encoded.drawn.items()}
            before = encoded
        return Encoded(before.inputs, before.labels, pool.domain, drawn)

    def wrapped(self, model: nn.Module, domain: Domain) -> nn.Module:
        """The model stage: the network that is trained in place of ``model``."""
        return reduce(lambda wrapped, part: part.wrap(wrapped, domain), self.model, model)

    def loss(self, loss: Loss) -> Loss:
        """The model stage: the loss of the wrapped model's outputs; its last part added its term last."""
        return reduce(lambda outer, part: part.loss(outer), self.model, loss)

    def draw(self, model: nn.Module, batch: int, steps: int, *, generator: Generator) -> dict[str, Value]:
        """The model stage: the random numbers of one update, by address, ``[batch, …]`` or ``[batch, steps, …]``."""
        return {
            f"{label}.{name}": value
            for label, part in self.stage("model").items()
            for name, value in part.draw(model, batch, steps, generator=generator).items()  # type: ignore[attr-defined]
        }

    def buffers(self, model: nn.Module, drawn: Nuisances) -> dict[str, Tensor]:
        """The model stage's numbers by the name of the buffer that takes them."""
        places = {
            f"{label}.{name}": buffer
            for label, part in self.stage("model").items()
            for name, buffer in part.buffers(model).items()  # type: ignore[attr-defined]
        }
        return {places[address]: value for address, value in drawn.items() if address in places}  # type: ignore[misc]

    def perturb(self, steps: int, *, generator: Generator) -> dict[str, Value]:
        """The training stage: what it draws for the local steps of one update, by address."""
        return {
            f"{label}.{name}": value
            for label, part in self.stage("training").items()
            for name, value in part.draw(steps, generator=generator).items()  # type: ignore[attr-defined]
        }

    def rates(self, rates: Tensor, drawn: Nuisances) -> Tensor:
        """The training stage: the rate of every local step, ``[…, steps]``, from the recipe's."""
        for label, part in self.stage("training").items():
            rates = part.rates(rates, own_of(drawn, label))  # type: ignore[attr-defined]
        return rates

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
        for part in parts_of(how):
            _check_form(part)
        return Protection(update=how)
    stage = getattr(how, "stage", None)
    if stage in STAGES[:3] and not isinstance(how, type):
        _check_form(how)
        stages: Mapping[str, Any] = {stage: (how,)}
        return Protection(**stages)
    uncalled = isinstance(how, type) and stage in STAGES
    remedy = f"call it: {how.__name__}(…)" if uncalled else "see `leakgauge list defense`"
    raise ExpressionError(f"{how!r} is not a defense", where="defense", remedy=remedy)


def _check_form(part: Any) -> None:
    """A part is a value with a textual form, and declares what it hides as nuisances."""
    name, form = type(part).__name__, getattr(part, "__dataclass_params__", None)
    if form is None or not form.frozen:
        raise ExpressionError(
            f"the class {name} is no frozen dataclass, so its settings cannot be printed and compared",
            where="defense",
            remedy=f"write @dataclass(frozen=True) above class {name}",
        )
    if " at 0x" in repr(part):
        raise ExpressionError(
            f"a setting of {part!r} prints as an address, which says nothing of what it does",
            where="defense",
            remedy="give numbers, texts, tensors or parts as settings, and write functions into the class",
        )
    for nuisance in part.nuisances:
        if not isinstance(nuisance, Nuisance):
            raise ExpressionError(
                f"the nuisances of {name} hold {nuisance!r}",
                where="defense",
                remedy='declare each as Nuisance("name", per="entry")',
            )
    names = [nuisance.name for nuisance in part.nuisances]
    for wrong in (one for i, one in enumerate(names) if "." in one or one in names[:i]):
        what = "has a dot in it" if "." in wrong else "is declared twice"
        raise ExpressionError(
            f"the nuisance {wrong!r} of {name} {what}, so that its address means no one thing",
            where="defense",
            remedy="give every nuisance of a part a plain name of its own",
        )
