"""How much of each record's own picture is in a reconstruction, and in how many other records as much of theirs.

The *peers* of a record are records that could have stood in its place: it and others, of its class where labels are
granted. With ``r`` a reconstruction, ``r̄`` the mean of those from the other updates of the cell, and ``x̄`` the mean of
x's peers, the nearness of an update to x is

``max over its batch of ⟨r − r̄, x − x̄⟩ / ‖x − x̄‖``:

what distinguishes this reconstruction from the others, along what distinguishes this record from its peers. What a
guess without an update shows (``x̄``) and what the adversary makes of any update (``r̄``) are subtracted. If an update
says nothing about its record, then that record is one more draw of its peers, whatever the reconstructions are.

Only what the test needs is kept. The nearness to many public records would give a reconstruction away, which a redacted
run must not; so of the peers only those count that are as near as the nearest own record of the cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from leakgauge.metrics import vectors
from leakgauge.study.study import Study

JSON = dict[str, Any]


def nearness(study: Study, inputs: Tensor, first: int) -> JSON:
    """What a cell keeps of its reconstructions ``[U·B, *shape]``, the updates from ``first`` on.

    ``own``: the nearness to each own record; ``rank``: how many of its peers, itself included, are at least as near;
    ``square`` and ``count``: the sum of squares over all peers of all records, and their number; ``tail``: ``[update,
    peer, nearness]`` of all that are at least as near as the nearest own record of the cell.
    """
    batch, groups = study.task.recipe.batch, study.peer_groups
    table = _table(study, inputs).unflatten(0, (-1, batch)).amax(1)
    records = torch.arange(first * batch, first * batch + len(inputs))
    rows = table.repeat_interleave(batch, 0)
    own = rows.gather(1, records[:, None])
    peers = groups[records][:, None] == groups[None]
    near = (rows >= own) & peers
    wanted = torch.zeros_like(table, dtype=torch.bool)
    if float(own.max()) > 0:
        reached = (rows >= own.max()) & peers
        wanted = reached.unflatten(0, (-1, batch)).any(1)
    places = wanted.nonzero()
    values = table[wanted].tolist()
    return {
        "own": own.squeeze(1).tolist(),
        "rank": near.sum(1).tolist(),
        "square": float((rows.square() * peers).sum()),
        "count": int(peers.sum()),
        "tail": [[first + u, p, value] for (u, p), value in zip(places.tolist(), values, strict=True)],
    }


def _table(study: Study, inputs: Tensor) -> Tensor:
    """``[U·B, P]``: the nearness of every reconstruction to every peer, to six digits of the largest."""
    domain, pool, batch = study.task.domain, study.peers.inputs, study.task.recipe.batch
    vocabulary = 1 + int(max(inputs.max(), pool.max())) if domain.kind == "tokens" else 0
    ours = vectors(inputs, domain, tokens=vocabulary).unflatten(0, (-1, batch))
    if len(ours) > 1:
        means = ours.mean(1, keepdim=True)
        ours = ours - (means.sum(0) - means) / (len(ours) - 1)
    ours = ours.flatten(0, 1)
    table: Tensor = ours.new_zeros(len(ours), len(pool))
    for group in study.peer_groups.unique():
        members = study.peer_groups == group
        theirs = vectors(pool[members], domain, tokens=vocabulary)
        theirs = theirs - theirs.mean(0)
        norms = torch.linalg.vector_norm(theirs, dim=1)
        table[:, members] = (ours @ theirs.T / norms).where(norms > 0, 0.0)
    unit = 1e-6 * float(table.abs().max())  # equal up to rounding is a tie
    if unit > 0:
        table = (table / unit).round() * unit
    return table
