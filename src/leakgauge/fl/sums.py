"""Secure sums among clients of one process: whole numbers, counts of records and classes, and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.fl.errors import DroppedError
from leakgauge.fl.secure_sum import LEAST, MODULUS, Identity, Member, Session, Words, total
from leakgauge.types import Records, Tree

FRACTION_BITS = 32
"""Bits behind the point of a number in an update: 2⁻³² is below the rounding of most float32 weights."""


@dataclass(repr=False)
class SecureSums:
    """All clients of a run, and the server between them; the server sees announced keys and masked values alone.

    ``masked`` holds what the server received in the last attempt, for tests of what it sees.
    """

    names: Sequence[str]
    run: str
    members: dict[str, Member] = field(init=False)
    directory: dict[str, bytes] = field(init=False)
    masked: dict[str, Words] = field(init=False, default_factory=dict)
    _attempts: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        identities = [Identity.new(name) for name in self.names]
        self.directory = {one.name: one.public for one in identities}
        self.members = {one.name: Member(one, self.directory) for one in identities}

    def attempt(
        self, values: Mapping[str, Sequence[int] | Words], quantity: str, absent: Sequence[str] = ()
    ) -> list[int]:
        """One attempt over the clients of ``values``; those ``absent`` vanish after they announced their keys."""
        length = len(next(iter(values.values()), ()))
        number = self._attempts.get(quantity, 0)
        self._attempts[quantity] = number + 1
        session = Session(self.run, quantity, tuple(values), length, number)
        announced = [self.members[name].announce(session) for name in session.cohort]
        masked = [
            self.members[name].mask(session, announced, values[name]) for name in session.cohort if name not in absent
        ]
        self.masked = {one.name: one.values for one in masked}
        result = total(session, masked, self.directory)
        for name in session.cohort:
            self.members[name].learn(session)
        return result

    def sum(
        self, values: Mapping[str, Sequence[int] | Words], quantity: str, absent: Sequence[str] = ()
    ) -> tuple[list[int], tuple[str, ...]]:
        """The sum, and over whom: after a client dropped out, once more without it, with new keys."""
        try:
            return self.attempt(values, quantity, absent), tuple(values)
        except DroppedError as dropped:
            rest = {name: value for name, value in values.items() if name not in dropped.clients}
            return self.attempt(rest, quantity), tuple(rest)


@dataclass(frozen=True)
class Totals:
    """What clients must know of each other: how many they are, and the sums of their records and of their classes."""

    clients: int
    examples: int
    classes: int

    @classmethod
    def in_clear(cls, clients: Sequence[Records]) -> Totals:
        """From the counts themselves, which the server then sees."""
        return cls(len(clients), sum(map(len, clients)), sum(map(classes_of, clients)))

    @classmethod
    def secure(cls, clients: Sequence[Records], run: str = "totals") -> Totals:
        """By one secure sum of ``[n_k, |Y_k|]``: nobody's own counts leave it."""
        names = [str(k) for k in range(len(clients))]
        counts = {name: [len(own), classes_of(own)] for name, own in zip(names, clients, strict=True)}
        if len(clients) < LEAST:
            raise DomainError(
                f"{len(clients)} client{'s' if len(clients) > 1 else ''} cannot add up their counts in secret",
                where="federate",
                remedy=f"take {LEAST} or more; in Python, totals=Totals.in_clear(clients) tells the server every count",
            )
        examples, classes = SecureSums(names, run).attempt(counts, "counts")
        return cls(len(clients), examples, classes)

    def share(self, own: Records) -> float:
        """``p_k N``: a client's share of all records, relative to an equal one."""
        return len(own) / self.examples * self.clients

    @property
    def mean_classes(self) -> float:
        return self.classes / self.clients


def classes_of(records: Records) -> int:
    """``|Y_k|``: how many classes a client has."""
    return len(records.labels.unique())


def fixed_point(tree: Tree, clients: int, *, weight: float = 1.0) -> Words:
    """``[round(w u · 2³²), round(w · 2³²)]`` modulo 2⁶⁴, of all tensors in order, then the weight itself.

    Negative numbers wrap around. An entry that could overflow the sum of ``clients`` is an error, never a wrong sum.
    """
    flat = torch.cat([tensor.detach().double().flatten().cpu() for tensor in tree.values()])
    numbers = np.append((weight * flat).numpy(), guards.positive(weight, "weight", "fixed_point"))
    largest = MODULUS / 2 / clients / 2**FRACTION_BITS
    if not bool(np.isfinite(numbers).all()) or float(np.abs(numbers).max()) >= largest:
        raise DomainError(
            f"an entry is not finite, or not below {largest:.4g}, where {clients} of them could overflow",
            where="fixed_point",
            remedy="clip the update, or give a smaller weight",
        )
    whole: Words = np.rint(numbers * 2**FRACTION_BITS).astype(np.int64).view(np.uint64)
    return whole


def from_fixed_point(words: Sequence[int], like: Tree) -> dict[str, Tensor]:
    """The weighted mean behind the sum of encoded updates: ``Σ w_k u_k / Σ w_k``."""
    signed = np.asarray(words, dtype=np.uint64).view(np.int64).astype(np.float64) / 2**FRACTION_BITS
    flat, weight = torch.from_numpy(signed[:-1]), float(signed[-1])
    sizes = [tensor.numel() for tensor in like.values()]
    pieces: Any = flat.split(sizes)
    return {name: (piece / weight).view_as(like[name]) for name, piece in zip(like, pieces, strict=True)}


__all__ = ["SecureSums", "Totals", "classes_of", "fixed_point", "from_fixed_point"]
