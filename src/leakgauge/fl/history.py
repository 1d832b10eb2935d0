"""What a federated training left behind, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Lost:
    """A client whose answer does not count in a round, and why: it vanished, or sent what does not fit the model."""

    client: int
    why: str


@dataclass(frozen=True)
class RoundLog:
    """One round: the learning rate, who was averaged, who was lost, and the accuracy after it (None: not measured)."""

    number: int
    rate: float
    clients: tuple[int, ...]
    lost: tuple[Lost, ...] = ()
    accuracy: float | None = None


@dataclass(frozen=True, repr=False)
class History:
    """The rounds of a training, and the state dict after the last: ``task.at(history.state)`` is the task there."""

    rounds: tuple[RoundLog, ...]
    state: Mapping[str, Tensor]

    @property
    def accuracies(self) -> dict[int, float]:
        """Round → accuracy, where it was measured; 0 is the model before training."""
        return {one.number: one.accuracy for one in self.rounds if one.accuracy is not None}

    @property
    def accuracy(self) -> float:
        """The last one that was measured; NaN without any."""
        return next(reversed(self.accuracies.values()), float("nan"))

    @property
    def lost(self) -> tuple[tuple[int, Lost], ...]:
        """Every loss with its round."""
        return tuple((one.number, lost) for one in self.rounds for lost in one.lost)

    def __repr__(self) -> str:
        last = max((one.number for one in self.rounds), default=0)  # number 0 is the model before training
        rounds = f"{last} round{'s' if last != 1 else ''}"
        return f"History({rounds}, accuracy {self.accuracy:.4f}, {len(self.lost)} answers lost)"
