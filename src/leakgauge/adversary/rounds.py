"""Observations that can be attacked together, and what each of their rounds shows, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from leakgauge.client import LABELS
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Knowledge, Known, Nuisances, Tree, Value
from leakgauge.updates import Stack, stacked


@dataclass(frozen=True)
class Shown:
    """One round of some observations ``[M, …]``: observed updates, what is known of the update stage (granted, or read
    off), and what is granted of the stages before it."""

    observed: Stack
    known: Known
    granted: Nuisances

    def first(self) -> Shown:
        """The first observation alone."""
        one = Stack({name: value[:1] for name, value in self.observed.items()})
        known = {address: {name: v[:1] for name, v in tree.items()} for address, tree in self.known.items()}
        return Shown(one, known, _rows(self.granted, slice(0, 1)))

    def granted_to(self, rows: Tensor) -> Nuisances:
        """What is granted of the earlier stages, one row per candidate."""
        return _rows(self.granted, rows)


@dataclass(frozen=True)
class Group:
    """Observations with the same state, batch size and grants in every round; ``places`` is where they stood."""

    task: Task
    observations: tuple[Observation, ...]
    places: tuple[int, ...]

    @property
    def batch(self) -> int:
        return self.observations[0].batch

    @cached_property
    def like(self) -> Tensor:
        """An empty tensor of the task's type, on its device."""
        return next(iter(self.task.params.values())).new_zeros(0)

    @cached_property
    def states(self) -> list[Tree]:
        """The parameters of every round."""
        return [{n: p.to(self.like) for n, p in one.params.items()} for one in self.observations[0].rounds]

    @cached_property
    def buffers(self) -> list[Tree]:
        """The state of every round that is used but not trained."""
        return [{**self.task.buffers, **one.buffers} for one in self.observations[0].rounds]

    @cached_property
    def first_alike(self) -> list[int]:
        """For every round, the first one at the same state: without nuisances their updates are the same."""
        states = [
            tuple((name, t.data_ptr()) for name, t in (*params.items(), *buffers.items()))
            for params, buffers in zip(self.states, self.buffers, strict=True)
        ]
        return [states.index(state) for state in states]

    @cached_property
    def knows(self) -> dict[str, Knowledge]:
        """Address → whether it is granted."""
        rounds = self.observations[0].rounds
        return {
            address: "granted" if all(address in one.granted for one in rounds) else "hidden"
            for address in self.task.nuisances
        }

    def shown(self, rows: Sequence[int], r: int) -> Shown:
        """Round r of the observations ``rows``."""
        rounds = [self.observations[i].rounds[r] for i in rows]
        observed = stacked([_moved(one.observed, self.like) for one in rounds])
        chain = self.task.protection.chain
        released = {nuisance.name for nuisance in chain.nuisances}
        granted = {
            address: _stacked([one.granted[address] for one in rounds], self.like)
            for address in rounds[0].granted
            if address != LABELS
        }
        told: Any = {address: value for address, value in granted.items() if address in released}
        earlier = {address: value for address, value in granted.items() if address not in released}
        return Shown(observed, {**chain.visible(observed), **told}, earlier)


def groups(task: Task, observations: Sequence[Observation]) -> list[Group]:
    """Observations that can share a batch of the solver."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for i, one in enumerate(observations):
        states = tuple(
            tuple((name, t.data_ptr()) for name, t in (*r.params.items(), *r.buffers.items())) for r in one.rounds
        )
        grants = tuple(tuple(sorted(r.granted)) for r in one.rounds)
        soft = None if one.labels is None else one.labels.dim()
        places.setdefault((states, grants, one.batch, soft), []).append(i)
    return [Group(task, tuple(observations[i] for i in at), tuple(at)) for at in places.values()]


def _rows(values: Nuisances, which: Any) -> dict[str, Value]:
    return {
        address: value[which] if isinstance(value, Tensor) else {name: v[which] for name, v in value.items()}
        for address, value in values.items()
    }


def _stacked(values: Sequence[Value], like: Tensor) -> Value:
    if isinstance(values[0], Tensor):
        return torch.stack([_to(value, like) for value in values if isinstance(value, Tensor)])
    return stacked([_moved(value, like) for value in values if not isinstance(value, Tensor)])


def _moved(tree: Tree, like: Tensor) -> dict[str, Tensor]:
    return {name: _to(value, like) for name, value in tree.items()}


def _to(value: Tensor, like: Tensor) -> Tensor:
    """On the task's device; numbers in its precision, masks and indices as they are."""
    return value.to(like) if value.is_floating_point() else value.to(like.device)
