"""Who a client is in an audit: every ten updates are taken for one client's; the last client has what is left."""

from __future__ import annotations

import sys

from leakgauge.defenses.stages import InputPart
from leakgauge.errors import DataError, LeakgaugeError
from leakgauge.study.spec import Spec
from leakgauge.types import Domain

CHUNK = 10
"""Updates attacked together in one cell: enough for the batched solver, few enough to lose little."""


def encodes(part: InputPart, domain: Domain, spec: Spec) -> None:
    """Refuse a part that cannot encode such records, or mixes more than a client has."""
    part.check(domain, sys.maxsize)
    records, batch = spec.task.records, spec.task.recipe.batch
    last = (records - 1) % CHUNK + 1
    for size in (min(records, CHUNK), last):
        try:
            part.check(domain, size * batch)
        except LeakgaugeError as fault:
            who = "each" if size == CHUNK else "the last client here" if size < records else "the one client here"
            raise DataError(
                f"{fault.what}: every {CHUNK} updates are taken as one client, and {who} holds {size * batch} records",
                where=fault.where,
                remedy=f"say a smaller k, or {_larger(part, domain, spec, last)}",
            ) from None


def _larger(part: InputPart, domain: Domain, spec: Spec, last: int) -> str:
    """What gives every client enough records: full clients, or larger updates."""
    try:
        part.check(domain, CHUNK * spec.task.recipe.batch)
    except LeakgaugeError:
        return "a larger recipe.batch"
    return f"records = {spec.task.records - last or CHUNK} (a multiple of {CHUNK}: every client is full)"
