"""The test of one record by itself: a mean over records would hide a single leak.

If no update says anything about its record beyond the grants, every way of putting peers in the places of the reported
records is as likely as the one that happened (:mod:`leakgauge.audit.nearness` says who is a peer of whom). The
statistic is the largest nearness of an update to its record, over records and adversaries, each adversary's in units of
its spread over all peers; p is the share of the ways that reach it. Exact whatever the law of the scores: it does not
matter that they are skewed, nearly constant or tied, for the reconstructions stay as they are, and only records move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
DRAWS = 9_999
BLOCK = 4_000_000
"""Places drawn at once, for memory."""


@dataclass(frozen=True)
class Nearness:
    """The nearness of one adversary's reconstructions to records, see :func:`leakgauge.audit.nearness.nearness`."""

    own: Numbers
    rank: Places
    square: float
    count: int
    updates: Places
    peers: Places
    values: Numbers

    @classmethod
    def of(cls, cells: Sequence[Mapping[str, Any]]) -> Nearness:
        """That of all cells of an adversary."""
        tail = [entry for cell in cells for entry in cell["tail"]]
        return cls(
            own=np.concatenate([np.asarray(cell["own"], np.float64) for cell in cells]),
            rank=np.concatenate([np.asarray(cell["rank"], np.int64) for cell in cells]),
            square=sum(cell["square"] for cell in cells),
            count=sum(cell["count"] for cell in cells),
            updates=np.array([entry[0] for entry in tail], np.int64),
            peers=np.array([entry[1] for entry in tail], np.int64),
            values=np.array([entry[2] for entry in tail], np.float64),
        )

    @property
    def spread(self) -> float:
        return sqrt(self.square / self.count)

    def reaching(self, level: float) -> tuple[Places, Places]:
        """The updates and peers that are as near as ``level`` spreads; at least as near as the nearest own record."""
        if not self.spread:
            return self.updates[:0], self.peers[:0]
        near = self.values / self.spread >= level * (1 - 1e-12)
        return self.updates[near], self.peers[near]


def single_p(
    adversaries: Iterable[Nearness], groups: Places, *, batch: int = 1, draws: int = DRAWS, seed: int = 0
) -> float:
    """The p-value of the nearest record: ``(1 + b) / (1 + draws)``, b of the draws as near as what happened.

    ``groups [P]`` tells which peers can stand for each other; the first are the reported records. A draw puts peers of
    a record's group in its place, none twice. The smallest p-value is about one over the size of the record's group.
    """
    every = [one for one in adversaries if one.spread]
    level = max((float(one.own.max()) / one.spread for one in every), default=0.0)
    if level <= 0:
        return 1.0
    records = len(every[0].own)
    hits = np.zeros((records // batch, len(groups)), bool)
    for one in every:
        hits[one.reaching(level)] = True
    generator = np.random.Generator(np.random.PCG64(seed))
    reached = np.zeros(draws, bool)
    for group in np.unique(groups[:records]):
        members, places = np.flatnonzero(groups == group), np.flatnonzero(groups[:records] == group)
        near = hits[np.ix_(places // batch, members)]
        if near.any():
            reached |= _drawn(near, draws, generator)
    return float((1 + reached.sum()) / (1 + draws))


def _drawn(near: npt.NDArray[np.bool_], draws: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Whether a draw of different columns, one for each row, meets a True entry: so many draws."""
    rows, columns = near.shape
    size = max(1, BLOCK // columns)
    blocks = []
    for start in range(0, draws, size):
        block = min(size, draws - start)
        urn, each = np.tile(np.arange(columns), (block, 1)), np.arange(block)
        met = np.zeros(block, bool)
        for row in range(rows):
            place = generator.integers(row, columns, block)
            chosen = urn[each, place]
            urn[each, place] = urn[:, row]
            met |= near[row, chosen]
        blocks.append(met)
    return np.concatenate(blocks)


def exposure(adversaries: Sequence[Nearness], groups: Places) -> Numbers:
    """The share of each record's peers, itself included, to which its update is at least as near, ``[n]``: the smallest
    over the adversaries, times their number."""
    records = len(adversaries[0].own)
    _, which, many = np.unique(groups, return_inverse=True, return_counts=True)
    sizes = many[which[:records]]
    share = np.minimum.reduce([one.rank / sizes for one in adversaries])
    smallest: Numbers = np.minimum(1.0, len(adversaries) * share)
    return smallest


def least_single_p(groups: Places, records: int, draws: int = DRAWS) -> float:
    """The smallest p-value that a single leaking record is expected to reach, where it has the most peers."""
    sizes = [int((groups == group).sum()) for group in np.unique(groups[:records])]
    return max(1 / max(sizes), 1 / (1 + draws))
