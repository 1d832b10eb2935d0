"""Who a client is in a study: ``client_records`` consecutive reported records; the last client has what is left.

It matters only to defenses that mix the records of a client. How many updates are attacked together is another
question, which the plan answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from leakgauge.defenses.stages import InputPart
from leakgauge.errors import DataError, LeakgaugeError
from leakgauge.study.sections import Spec
from leakgauge.types import Domain


def clients(spec: Spec) -> Iterator[range]:
    """The updates of each client."""
    updates, size = spec.task.records, updates_per_client(spec)
    for start in range(0, updates, size):
        yield range(start, min(start + size, updates))


def updates_per_client(spec: Spec) -> int:
    """How many updates are one client's; all of them unless ``task.client_records`` says otherwise."""
    if spec.task.client_records is None:
        return spec.task.records
    return max(1, min(spec.task.client_records // spec.task.recipe.batch, spec.task.records))


def encodes(part: InputPart, domain: Domain, spec: Spec) -> None:
    """Refuse a part that cannot encode such records, or mixes more than a client has."""
    part.check(domain, sys.maxsize)
    sizes = [len(updates) * spec.task.recipe.batch for updates in clients(spec)]
    for size in dict.fromkeys(sizes):
        try:
            part.check(domain, size)
        except LeakgaugeError as fault:
            alone, last = len(sizes) == 1, size == sizes[-1] != sizes[0]
            who = "the one client here" if alone else "the last client here" if last else "each client"
            full = spec.task.records - spec.task.records % updates_per_client(spec)
            more = f"records = {full}, so that every client is full" if last else _more(alone)
            raise DataError(
                f"{fault.what}: {who} holds {size} records", where=fault.where, remedy=f"say a smaller k, or {more}"
            ) from None


def _more(alone: bool) -> str:
    return "more records" if alone else "a larger task.client_records"
