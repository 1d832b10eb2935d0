"""Protection: the one composition of defenses at the four stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leakgauge.errors import ExpressionError
from leakgauge.expr import parse
from leakgauge.mechanisms import Identity, UpdatePart

STAGES = ("input", "model", "training", "update")


@dataclass(frozen=True)
class Protection:
    """What a client does to protect itself: parts at the input, model, training and update stage.

    ``mixup(k=4) | prune(p=0.9)`` builds one; the stages act in the order of their names here, whatever the
    order in which they were written. An empty stage does nothing.
    """

    input: tuple[Any, ...] = ()
    model: tuple[Any, ...] = ()
    training: tuple[Any, ...] = ()
    update: UpdatePart = field(default_factory=Identity)

    @property
    def nuisances(self) -> tuple[str, ...]:
        """Everything random or hidden in it that is not the record."""
        early = (part for stage in STAGES[:3] for part in getattr(self, stage))
        return (*(name for part in early for name in part.nuisances), *self.update.nuisances)

    def __repr__(self) -> str:
        early = [part for stage in STAGES[:3] for part in getattr(self, stage)]
        late = [] if early and isinstance(self.update, Identity) else [self.update]
        return " | ".join(map(repr, [*early, *late]))

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
        how = parse(how, "mechanism", where="defense")
    if isinstance(how, Protection):
        return how
    if isinstance(how, UpdatePart):
        return Protection(update=how)
    stage = getattr(how, "stage", None)
    if stage in STAGES[:3]:
        stages: dict[str, Any] = {stage: (how,)}
        return Protection(**stages)
    raise ExpressionError(f"{how!r} is not a defense", where="defense", remedy="see `leakgauge list mechanism`")
