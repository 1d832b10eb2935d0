"""How a captured update can be read: as it is or turned around, and which of the two the evidence favours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from leakgauge.client import LABELS
from leakgauge.defenses import Protection
from leakgauge.inspect.captures import Capture
from leakgauge.inspect.separable import separable
from leakgauge.inspect.signs import sign_of
from leakgauge.observation import Observation, Round
from leakgauge.storage.states import State
from leakgauge.task import Task
from leakgauge.types import Nuisances

EXPLAINS = 0.98
"""The share of the update from which on guessed labels count as right: wrong ones leave more than a few percent."""

FACTOR = 1.3
"""How many times more than its opposite the better reading leaves unexplained, for the two to differ."""

TURNED = "the update pointed against the gradient and was turned: were before and after exchanged?"
UNDECIDED = (
    "whether the update points along the gradient or against it cannot be told: both are shown; the file's "
    "metadata may state sign = 1 or sign = -1"
)


@dataclass(frozen=True)
class Reading:
    """A capture read in one direction; ``turned`` against the one it was given in."""

    observation: Observation
    turned: bool


def readings(task: Task, capture: Capture, batch: int, labels: Tensor | None) -> list[Reading]:
    """One reading where the file states its sign or the last layer shows it, otherwise both, as given first.

    Labels that the last layer shows whatever the sign are used in both.
    """
    if labels is None and batch > 1:
        labels = separable(capture.gradient, task.domain.classes, batch)
    sign = 1 if capture.declared else sign_of(task, capture.gradient, batch)
    signs = (1, -1) if sign is None else (sign,)
    granted: Nuisances = {} if labels is None else {LABELS: labels}
    return [Reading(read(task, capture, each, batch, granted), each < 0) for each in signs]


def read(task: Task, capture: Capture, sign: int, batch: int, granted: Nuisances) -> Observation:
    """What was sent: a gradient, or a change, which points against it; in its own scale if a defense acts on it."""
    size = capture.size if task.protection != Protection() else 1.0
    factor = sign * size * (-1 if task.recipe.shares == "change" else 1)
    observed = {name: factor * value for name, value in capture.gradient.items()}
    start = capture.after if sign < 0 and capture.after is not None else None
    if start is None:
        return Observation((Round(observed, task.params, granted, sent=capture.sent),), batch)
    # turned around, the statistics moved from those that were sent to those of before
    moved = {name: capture.before.tensors[name] for name in capture.sent}
    one = Round(observed, _weights(task, start), granted, buffers=capture.sent, sent=moved)
    return Observation((one,), batch)


def _weights(task: Task, state: State) -> dict[str, Tensor]:
    return {name: state.tensors[name].to(value) for name, value in task.params.items()}


def decided(shares: Sequence[float], above_noise: Sequence[bool], *, labels_known: bool = False) -> int | None:
    """Which of two readings the attack favours, or None.

    One explains more than noise gives and the other does not; or the better leaves far less unexplained than the
    other. With guessed labels, which may be wrong under either sign, it must explain nearly all of the update as well.
    """
    better = 0 if shares[0] >= shares[1] else 1
    if not labels_known and shares[better] < EXPLAINS:
        return None
    if above_noise[0] != above_noise[1]:
        return 0 if above_noise[0] else 1
    left = [1 - share for share in shares]
    return better if left[1 - better] >= FACTOR * left[better] else None
