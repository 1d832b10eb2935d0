"""Replaying a client: what it left behind, and how far our client is from it under a set-up.

Everything is computed in float64: then the only rounding in the comparison is the user's own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leakgauge.client import Recipe, gradient_of, update_of
from leakgauge.doctor.setup import Channels, Setup
from leakgauge.errors import LeakgaugeError
from leakgauge.losses import CrossEntropy
from leakgauge.models import normalised
from leakgauge.storage.states import FileError, Kind, State, some
from leakgauge.task import working_copy
from leakgauge.types import Loss, Records


@dataclass(frozen=True)
class Evidence:
    """What a real client left behind: its weights before and after (or its update), and the batch it used."""

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    records: Records
    kind: Kind | None = None

    @classmethod
    def of(cls, before: State, after: State, records: Records) -> Evidence:
        return cls(before.tensors, after.tensors, records, after.kind)


@dataclass
class Replayer:
    """Our client on the user's evidence; counts the gradients it computes."""

    model: nn.Module
    evidence: Evidence
    loss: Loss = field(default_factory=CrossEntropy)
    gradients: int = 0

    def __post_init__(self) -> None:
        own = copy.deepcopy(self.model)
        State(dict(self.evidence.before), path=_BEFORE).into(own)
        self.base = own.double()
        self.names = [name for name, p in self.base.named_parameters() if p.requires_grad]
        self._check_after()
        self._models: dict[tuple[str, Channels | None], nn.Module | None] = {}
        self._once: dict[Any, Tensor] = {}

    def _check_after(self) -> None:
        own, after = dict(self.base.named_parameters()), self.evidence.after
        problems = [f"{name!r} is missing" for name in self.names if name not in after]
        problems += [
            f"{name!r} has shape {tuple(after[name].shape)}, the model's has {tuple(own[name].shape)}"
            for name in self.names
            if name in after and after[name].shape != own[name].shape
        ]
        if problems:
            raise FileError(some(problems), where=str(_AFTER), remedy="give the weights of this model")

    @property
    def batch(self) -> int:
        return len(self.evidence.records)

    @cached_property
    def eps(self) -> float:
        """The rounding of the user's numbers."""
        types = [self.evidence.after[name].dtype for name in self.names]
        return max(torch.finfo(t).eps if t.is_floating_point else 1.0 for t in types) / 2

    def theta(self, setup: Setup) -> dict[str, Tensor]:
        """The parameters at which the client began, under the names of the model."""
        source = self.evidence.after if setup.swapped else self.evidence.before
        own = {name: source[name].double() for name in self.names}
        if setup.renamed == "both":
            own.update({ours: source[theirs].double() for ours, theirs in setup.names})
        return own

    def observed(self, setup: Setup) -> Tensor:
        """What the client sent, as one vector: a change of weights, or the file itself."""
        source = self.evidence.before if setup.swapped else self.evidence.after
        sent = {name: source[name].double() for name in self.names}
        sent.update({ours: source[theirs].double() for ours, theirs in setup.names})
        if setup.holds == "weights":
            theta = self.theta(setup)
            sent = {name: value - theta[name] for name, value in sent.items()}
        return flat(sent)

    def working(self, setup: Setup) -> nn.Module | None:
        """The model in a mode and under a normalisation; None where it does not run like that."""
        key = (setup.mode, setup.normalise)
        if key not in self._models:
            self._models[key] = self._built(*key)
        return self._models[key]

    def _built(self, mode: str, norm: Channels | None) -> nn.Module | None:
        try:
            model = working_copy(normalised(self.base, *norm) if norm else self.base, mode)
            with torch.no_grad():
                model(self.evidence.records.inputs[: self.batch].double())
        except (LeakgaugeError, ValueError, RuntimeError):  # hidden dropout, batch norm of one value, other channels
            return None
        return model

    @cached_property
    def mode_matters(self) -> bool:
        """Whether the model does something else in train than in eval mode."""
        both = [self.working(Setup(mode=mode)) for mode in ("train", "eval")]
        if both[0] is None or both[1] is None:
            return True
        with torch.no_grad():
            return not torch.equal(*(model(self.evidence.records.inputs.double()) for model in both if model))

    def update(self, setup: Setup) -> Tensor:
        """Our client's update under a set-up, as one vector."""
        return self._run(setup, None, None)

    def gradient(self, setup: Setup, labels: Literal["true", "uniform"] = "true") -> Tensor:
        """The mean gradient of the whole batch; ``uniform`` labels give the direction of label smoothing."""
        plain = replace(setup, holds="gradient", local_steps=1, minibatch=None, reduction="mean", sign=1, order=None)
        plain = replace(plain, smoothing=0.0, momentum=0.0, weight_decay=0.0, learning_rate=1.0)
        key = (replace(plain, names=setup.names if setup.renamed == "both" else ()), labels)
        if key not in self._once:
            soft = None
            if labels == "uniform":
                classes = self.evidence.records.domain.classes
                soft = torch.full((self.batch, classes), 1 / classes, dtype=torch.float64)
            self._once[key] = self._run(plain, self.loss if soft is None else CrossEntropy(), soft)
        return self._once[key]

    @property
    def smooths(self) -> bool:
        """Whether label smoothing is a setting of the loss."""
        return isinstance(self.loss, CrossEntropy)

    def recipe(self, setup: Setup, loss: Loss | None = None) -> Recipe:
        """The recipe of a set-up, with the loss that it says."""
        return Recipe(
            batch=self.batch,
            mode=setup.mode,
            loss=loss if loss is not None else CrossEntropy(setup.smoothing) if self.smooths else self.loss,
            reduction=setup.reduction,
            shares="gradient" if setup.holds == "gradient" else "change",
            local_steps=setup.local_steps,
            learning_rate=setup.learning_rate,
            momentum=setup.momentum,
            weight_decay=setup.weight_decay,
            minibatch=setup.minibatch,
        )

    def _run(self, setup: Setup, loss: Loss | None, labels: Tensor | None) -> Tensor:
        model = self.working(setup)
        if model is None:
            raise FileError("the model does not run like this", where=setup.text("mode", "normalise"))
        recipe = self.recipe(setup, loss)
        order = list(setup.order) if setup.order is not None else slice(None)
        inputs = self.evidence.records.inputs.double()[order]
        y = (self.evidence.records.labels if labels is None else labels)[order]
        frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
        buffers = {**frozen, **dict(model.named_buffers())}
        self.gradients += setup.local_steps
        client = gradient_of if setup.holds == "gradient" else update_of
        return setup.sign * flat(client(model, self.theta(setup), buffers, inputs, y, recipe))

    def residual(self, setup: Setup) -> float:
        """``‖ours − theirs‖ / ‖theirs‖``."""
        if self.working(setup) is None:
            return float("inf")
        return distance(self.update(setup), self.observed(setup))

    def tolerance(self, setup: Setup) -> float:
        """What rounding explains: the user's float32, and the spacing of the weights that changed."""
        observed, floor = self.observed(setup), 0.0
        if setup.holds == "weights":
            floor = self.eps * float(flat(self.theta(setup)).norm() / observed.norm().clamp(min=1e-300))
        return max(RELATIVE * max(1.0, self.eps / 6e-8), 3 * floor * math.sqrt(setup.local_steps))


RELATIVE = 2e-4
"""float32 sums of a network's size agree to about 1e-5; a weight decay of 1e-4 moves an update by about 1e-3."""


def flat(tree: Mapping[str, Tensor]) -> Tensor:
    """All entries of a tree as one vector."""
    return torch.cat([value.flatten() for value in tree.values()])


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The relative residual; infinite for a set-up that diverges."""
    size = float(theirs.norm())
    residual = float((ours - theirs).norm()) / size if size else math.inf
    return math.inf if math.isnan(residual) else residual


class _Named:
    """A stand-in for a path in messages."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


_BEFORE: Any = _Named("the weights before")
_AFTER: Any = _Named("the weights after")
