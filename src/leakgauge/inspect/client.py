"""What is assumed of the client behind a captured update."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import nn

from leakgauge.client import Recipe
from leakgauge.defenses import Protection
from leakgauge.errors import DomainError
from leakgauge.inspect.captures import Capture
from leakgauge.losses import CrossEntropy
from leakgauge.task import Task
from leakgauge.types import Domain, Loss


@dataclass(frozen=True)
class Client:
    """The recipe of the client behind a captured update, and the defense that it declares."""

    model: nn.Module
    domain: Domain
    batch: int = 1
    mode: str = "eval"
    loss: Loss | None = None
    defense: Protection | None = None

    def __post_init__(self) -> None:
        early = self.defense and (*self.defense.input, *self.defense.model)
        if early:
            raise DomainError(
                f"{early[0]!r} acts on the records or the model, and a capture shows the update alone",
                where="inspect",
                remedy="name the parts that act on the update, or run an audit",
            )

    def task(self, capture: Capture) -> Task:
        """The task at the weights of a capture. Its scale says something only of a gradient under a defense; else it is
        a change with an unknown rate, so that labels, too, are read whatever the factor."""
        own = copy.deepcopy(self.model)
        capture.before.into(own)
        recipe = Recipe(
            batch=self.batch,
            mode="train" if self.mode == "train" else "eval",
            loss=self.loss or CrossEntropy(),
            shares="gradient" if self.defense is not None and capture.kind == "gradient" else "change",
            shares_buffers=bool(capture.sent) and self.mode == "train",
        )
        return Task(own, self.domain, recipe, self.defense or Protection())
