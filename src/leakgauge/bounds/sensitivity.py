"""How far the records of a client can move what the noise is added to, from what the parts before it promise."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from leakgauge.defenses import Protection, Sensitivity, UpdatePart, parts_of
from leakgauge.defenses.protection import STAGES
from leakgauge.errors import NoBoundError
from leakgauge.expr import Part


def sensitivity_at(whole: Protection, place: int, client: Sensitivity, grants: Collection[str] = ()) -> Sensitivity:
    """The sensitivity of the updates that reach the noise at ``place`` of the update-stage chain.

    ``client`` describes the client before any part. :class:`NoBoundError` explains why it is unbounded.
    """
    parts = parts_of(whole.update)
    noise, before = parts[place], parts[:place]
    _refuse_peeking(noise, parts[place + 1 :])
    _refuse_grants((*(part for stage in STAGES[:3] for part in getattr(whole, stage)), *before), grants)
    if noise.support == "sphere":
        return replace(client, radius=1.0, l2=1.0)  # every direction is possible, and clipping changes none
    reached, lengthened = client, None
    for part in before:
        after = part.sensitivity(reached)
        if math.isfinite(reached.radius) and math.isinf(after.radius):
            lengthened = part
        reached = after
    if math.isfinite(reached.radius):
        return reached
    if lengthened is not None:
        raise NoBoundError(
            f"{lengthened!r} may increase the norm of the update between clipping and {noise!r}",
            remedy="put it first",
        )
    raise NoBoundError(
        f"nothing clips the update before {noise!r}, so its sensitivity to a record is unbounded",
        remedy="put clip(norm=…) before it",
    )


def _refuse_peeking(noise: UpdatePart, after: Iterable[UpdatePart]) -> None:
    for part in after:
        if not part.post_processing:
            raise NoBoundError(
                f"{part!r} acts after {noise!r} but is not post-processing: it may use the record",
                remedy="put it before the noise",
            )


def _refuse_grants(before: Iterable[Part], grants: Collection[str]) -> None:
    """Refuse grants of parts before the noise that may depend on the record."""
    for part in before:
        for nuisance in getattr(part, "nuisances", ()):
            # what follows a law of its own is drawn without looking at the record
            if nuisance.law is None and any(_names(grant, part, nuisance.name) for grant in grants):
                raise NoBoundError(
                    f"the granted {nuisance.name} of {part!r} may depend on the record and bypasses the noise"
                )


def _names(grant: str, part: Part, name: str) -> bool:
    """Whether an address means this nuisance: ``mask``, or ``random_prune.mask``."""
    owner, _, bare = grant.rpartition(".")
    return bare == name and owner.partition("#")[0] in ("", getattr(part, "expression_name", ""), type(part).__name__)
