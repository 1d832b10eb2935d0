"""Several reconstructions as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.adversary.adversary import Reconstruction


def joined(parts: Sequence[Reconstruction], places: Sequence[int]) -> Reconstruction:
    """Several reconstructions as one; row i of the whole is row ``places[i]`` of the parts put together."""
    order = torch.tensor(places)
    traces, status = [t for p in parts for t in p.traces], [s for p in parts for s in p.status]
    return Reconstruction(
        torch.cat([p.inputs for p in parts])[order],
        torch.cat([p.labels for p in parts])[order],
        torch.cat([p.log_posterior for p in parts])[order],
        tuple(traces[i] for i in places),
        tuple(status[i] for i in places),
        sum(p.evaluations for p in parts),
        parts[0].path,
        certified=_certified(parts, order),
        codes=None if parts[0].codes is None else torch.cat([p.codes for p in parts if p.codes is not None])[order],
        notes=tuple(dict.fromkeys(note for p in parts for note in p.notes)),
    )


def _certified(parts: Sequence[Reconstruction], order: Tensor) -> Tensor | None:
    """Which records are proven; none of a part that proves nothing."""
    if all(p.certified is None for p in parts):
        return None
    masks = [torch.zeros(p.inputs.shape[:2], dtype=torch.bool) if p.certified is None else p.certified for p in parts]
    return torch.cat(masks)[order]


__all__ = ["joined"]
