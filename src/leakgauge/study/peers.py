"""Peers: records that could have stood in the place of a reported one, for the test of one record by itself.

If an update says nothing about its record beyond the grants, the record is one draw among its peers. So the more there
are, the smaller the p-value that a single leaking record can reach; they cost no attack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from leakgauge.study.roles import Roles, digest
from leakgauge.types import Records

MOST = 2000
"""Peers of all records together; more are slow to compare with and add little."""
MOST_NUMBERS = 30_000_000
"""Entries of all peers together, for memory."""


def peers(roles: Roles, *, labels_granted: bool, seed: int) -> Records:
    """The reported records, then as many others of each class per reported one: k for each, the same k for all classes
    where labels are hidden, so that others are mixed as the reported ones are.

    They come from the test records, then from the train records; none is a reported one or chose settings.
    """
    reported, counts = roles.reported, Counter(roles.reported.labels.tolist())
    size = max(1, reported.inputs[0].numel())
    most = max(0, min(MOST, MOST_NUMBERS // size) // len(reported) - 1)
    others = {label: _others(roles, label, most * count, seed) for label, count in counts.items()}
    times = {label: len(others[label]) // count for label, count in counts.items()}
    if not labels_granted:
        times = dict.fromkeys(times, min(times.values()))
    chosen = [others[label][: times[label] * count] for label, count in counts.items()]
    # class by class, the number of a peer in a cell would tell which records have the same label
    return _joined(reported, roles.privately(_joined(reported[:0], *chosen)))


def _joined(*some: Records) -> Records:
    inputs, labels = torch.cat([records.inputs for records in some]), torch.cat([records.labels for records in some])
    return Records(inputs, labels, some[0].domain)


def _others(roles: Roles, label: int, most: int, seed: int) -> Records:
    """At most so many other records of one class."""
    taken = {digest({"x": x}) for some in (roles.reported, roles.tuning) for x in some.inputs}
    generator = torch.Generator().manual_seed(seed)
    listed: list[Records] = []
    for source, shuffled in ((roles.test, False), (roles.train, True)):
        places = (source.labels == label).nonzero().flatten()
        places = places[torch.randperm(len(places), generator=generator)] if shuffled else places
        listed.append(source[list(_free(source, places.tolist(), taken, most - sum(map(len, listed))))])
    return _joined(roles.reported[:0], *listed)


def _free(source: Records, places: list[int], taken: set[str], most: int) -> Iterator[int]:
    """The places of records that nobody took."""
    for place in places:
        if most <= 0:
            return
        if digest({"x": source.inputs[place]}) not in taken:
            most -= 1
            yield place
