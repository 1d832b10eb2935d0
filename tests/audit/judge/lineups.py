"""Nearness tables as cells keep them, from tables made by hand."""

from __future__ import annotations

from leakgauge.audit.judge.single import Nearness, Numbers, Places


def summary(table: Numbers, groups: Places, batch: int = 1) -> Nearness:
    """What a cell keeps of a table ``[U, P]``, by its definition; the first peers are the reported records."""
    rows = table.repeat(batch, 0)
    own = rows.diagonal()
    peers = groups[: len(rows), None] == groups
    near = peers & (rows >= own.max()) & (own.max() > 0)
    updates, columns = near.reshape(len(table), batch, -1).any(1).nonzero()
    rank = (peers & (rows >= own[:, None])).sum(1)
    return Nearness(
        own, rank, float((rows[peers] ** 2).sum()), int(peers.sum()), updates, columns, table[updates, columns]
    )
