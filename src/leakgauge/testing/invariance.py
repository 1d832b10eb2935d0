"""The law of invariance: a public bijection of what is sent changes no score.

Whoever knows the mechanism undoes it: a sign, a scale, an offset, a permutation of the entries, another dtype. The
bijections here are written with ``release`` alone, as a new user writes a defense.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from leakgauge.adversary import Attack
from leakgauge.attacks import adaptive
from leakgauge.defenses import Release, UpdatePart, protection
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import Interval, mean_interval
from leakgauge.observation import observe
from leakgauge.task import Task
from leakgauge.testing.clients import image_records, image_task
from leakgauge.testing.grants import Score, capped_psnr
from leakgauge.types import Context, Records, Threat, Tree


@dataclass(frozen=True)
class Scaled(UpdatePart):
    """``o = c u`` with a public number c of either sign."""

    factor: float = -3.0

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: self.factor * value for name, value in update.items()})


@dataclass(frozen=True)
class Permuted(UpdatePart):
    """All entries in another order, the same for every update."""

    seed: int = 0

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        entries = torch.cat([value.flatten() for value in update.values()])
        order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(self.seed)).to(entries.device)
        pieces = entries[order].split([value.numel() for value in update.values()])
        return Release({name: piece.view_as(update[name]) for name, piece in zip(update, pieces, strict=True)})


@dataclass(frozen=True)
class Widened(UpdatePart):
    """The same numbers as float64."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value.double() for name, value in update.items()})


@dataclass(frozen=True)
class Shifted(UpdatePart):
    """Public numbers added to the entries, the same for every update."""

    size: float = 0.1

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        drawn = torch.Generator().manual_seed(0)
        return Release({n: u + self.size * torch.randn(u.shape, generator=drawn).to(u) for n, u in update.items()})


@dataclass(frozen=True)
class Uneven(UpdatePart):
    """Every tensor times a public number of its own, of either sign."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: (-2.0) ** (place - 1) * u for place, (name, u) in enumerate(update.items())})


BIJECTIONS: Mapping[str, UpdatePart] = {
    "sign and scale": Scaled(),
    "permutation": Permuted(),
    "dtype": Widened(),
    "offset": Shifted(),
    "scale per tensor": Uneven(),
}
"""Public bijections of what is sent, by name."""
SLACK = 0.5
"""In dB: two runs of an attack that differ by rounding alone end this far apart, and nobody calls it a difference."""


def decibels(reconstruction: Tensor, records: Tensor) -> Tensor:
    """``−20 log₁₀`` of the root mean square error of every record, at most 60."""
    error = (reconstruction - records).flatten(1).square().mean(1).clamp(min=1e-12)
    return (-10 * error.log10()).clamp(max=60.0)


def worth_of_bijection(
    how: Any,
    bijection: UpdatePart,
    *,
    task: Task | None = None,
    records: Records | None = None,
    threat: Threat | None = None,
    attack: Attack | None = None,
    score: Score | None = None,
    confidence: float = 0.95,
    seed: int = 4,
) -> Interval:
    """What a bijection after a defense changes: the mean gain in score per record, with an interval.

    The score is the PSNR of images, and of other records the same formula of their entries, at most 60 dB each.
    """
    task, records = task or image_task(), records or image_records(3)
    attack = attack or adaptive(steps=20)
    measure = score or (capped_psnr if records.domain.kind == "image" else decibels)

    def scores(protected: Task) -> Tensor:
        granted = (threat or Threat()).about(protected.nuisances)
        observations = observe(protected, records, threat=granted, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)
            inputs = attack(protected, observations, seed=seed).inputs.flatten(0, 1)
        return measure(inputs.to(records.inputs), records.inputs[: len(inputs)])

    plain = protection(how)
    return mean_interval(scores(task.protect(plain | bijection)) - scores(task.protect(plain)), confidence)


def invariance_law(how: Any, bijection: UpdatePart, *, slack: float = SLACK, **options: Any) -> Interval:
    """A public bijection after a defense changes the mean score of an attack by no more than its interval, or slack.

    Takes the options of :func:`worth_of_bijection` and returns its answer.
    """
    change = worth_of_bijection(how, bijection, **options)
    assert max(change.low, -change.high) <= slack, (
        f"{protection(how)!r} | {bijection!r} changes the score by {change.mean:.2f} (between {change.low:.2f} and "
        f"{change.high:.2f}) on average over {change.n} records"
    )
    return change
