"""When the hidden rates of a client repeat: one more stage, in which its rounds share them.

Directions do not show a hidden scale. Rounds that share it show the ratio of their lengths as well; and of several
local steps there is one set of rates to search for, in place of one per round.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.adversary.joining import joined
from leakgauge.adversary.rates import Shared, are_apart, hidden_rates, repeated_rates
from leakgauge.adversary.repeats import Repeat
from leakgauge.client import LABELS
from leakgauge.errors import AssumptionWarning
from leakgauge.observation import Observation
from leakgauge.task import Task

Closer = Callable[[Sequence[Observation], Tensor, Shared], Reconstruction]
"""An attack that begins at inputs ``[n, B, …]``, under rates that rounds share."""


@dataclass(frozen=True)
class _Client:
    """A client whose rates repeat: its place, a factor for each round ``[R]``, and every round's first one alike."""

    place: int
    address: str
    repeats: list[Repeat]
    factors: Tensor

    @property
    def first(self) -> tuple[int, ...]:
        firsts = {repeat.second: repeat.first for repeat in self.repeats}
        return tuple(firsts.get(r, r) for r in range(len(self.factors)))


def with_shared_rates(
    task: Task, observations: Sequence[Observation], guesses: Reconstruction, closer: Closer
) -> Reconstruction:
    """The guesses; where rates repeat, what a further stage makes of them, and a warning that says so.

    Records that were read off exactly need no such stage, and rounds at the same weights would give it nothing new.
    """
    clients = list(_whose_rates_repeat(task, observations, guesses))
    for client in clients:
        warnings.warn(f"hidden rates repeat: {client.repeats[0]}", AssumptionWarning, stacklevel=5)
    further = [c for c in clients if guesses.status[c.place] != "exact"]
    further = [c for c in further if are_apart(observations[c.place], c.repeats)]
    parts, places, rows = [guesses], list(range(len(observations))), len(observations)
    for first in dict.fromkeys(client.first for client in further):
        alike = [client for client in further if client.first == first]
        begun = [_labelled(observations[c.place], guesses.labels[c.place]) for c in alike]
        rates = torch.stack([client.factors for client in alike])
        inputs = guesses.inputs[[client.place for client in alike]]
        parts.append(closer(begun, inputs, Shared(first, {alike[0].address: rates})))
        for client in alike:
            places[client.place], rows = rows, rows + 1
    return joined(parts, places) if further else guesses


def _whose_rates_repeat(task: Task, observations: Sequence[Observation], guesses: Reconstruction) -> list[_Client]:
    clients = []
    for place, one in enumerate(observations):
        address = hidden_rates(task, one)
        if address is None:
            continue
        repeats, factors = repeated_rates(task, one, guesses.inputs[place], guesses.labels[place])
        if repeats:
            clients.append(_Client(place, address, repeats, factors))
    return clients


def _labelled(observation: Observation, labels: Tensor) -> Observation:
    """With the labels that the first stage ended with, which the second begins at."""
    return observation if observation.labels is not None else observation.given(LABELS, labels)


__all__ = ["Closer", "with_shared_rates"]
