"""Measuring rows, in this process or in several; whatever is finished stays finished."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from leakgauge import data, guards
from leakgauge.audit.run import claim
from leakgauge.audit.store import Store
from leakgauge.errors import LeakgaugeError, MissingDataError
from leakgauge.standings.rows import Row, Score, measured
from leakgauge.standings.set_ups import CLIENTS, Size, clients, planned
from leakgauge.storage.lock import locked
from leakgauge.storage.private import prepare
from leakgauge.threads import one_thread
from leakgauge.workers import begin_worker, pool

Report = Callable[[int, int, Score], None]
"""Called after every row with how many rows are done, how many there are, and its score."""


def run(rows: Sequence[Row], out: Path | str, *, workers: int = 1, report: Report | None = None) -> list[Score]:
    """Measure the rows that are not in the folder yet; their scores, in the order of the rows.

    Rows of a folder belong to one environment; the same call resumes.
    """
    guards.count(workers, "workers", "standings")
    folder = Path(out)
    prepare(folder)
    store = Store(folder)
    with locked(folder):
        claim(store, "standings")
        store.sweep()
        scores = dict(_measured(rows, store, workers, report))
    return [scores[row] for row in rows]


def gathered(out: Path | str, size: Size, *, own_code: bool = False) -> list[Score]:
    """Every row of a size in the folder whose parts have not changed since it was measured: ours in order, then others.

    Rows that name somebody's own code are read, which imports it, only if ``own_code`` says so.
    """
    return in_order(scores_of(_kept(out), size, folder=Path(out) / "cells", own_code=own_code), size)


def own_objects(out: Path | str, size: Size) -> list[list[str]]:
    """For every row of a size in the folder that names somebody's own code: which. Nothing of it is imported."""
    rows = [row for _, raw in _kept(out) if (row := _row(raw, size)) is not None]
    return [row.own for row in rows if row.own]


def _kept(out: Path | str) -> list[tuple[str, dict[str, Any]]]:
    store = Store(Path(out))
    cells = ((path.stem, store.result(path.stem)) for path in sorted((store.folder / "cells").glob("*.json")))
    return [(identity, raw) for identity, raw in cells if raw.get("kind") == "row"]


def in_order(scores: Sequence[Score], size: Size) -> list[Score]:
    """The planned rows of a size in their order, then the others."""
    order = {key: place for place, key in enumerate(planned(size, clients(size)))}
    return sorted(scores, key=lambda one: order.get((one.row.client, one.row.defense, one.row.attack), len(order)))


def scores_of(
    rows: Sequence[tuple[str, dict[str, Any]]], size: Size, *, folder: Path, own_code: bool = False
) -> list[Score]:
    """The scores of stored rows of a size, given with their identities; not of those whose parts have changed."""
    scores = []
    for identity, raw in rows:
        row = _row(raw, size)
        if row is not None and (own_code or not row.own) and _current(row, identity):
            scores.append(Score.of_json(row, raw, where=str(folder / f"{identity}.json")))
    return scores


def _row(raw: dict[str, Any], size: Size) -> Row | None:
    """The row that a cell is about; None for one of another size, or of a client that another version has."""
    by_name = {client.name: client for client in CLIENTS}
    match raw:
        case {"size": size.name, "client": str(client), "defense": str(defense), "attack": str(attack)}:
            return Row(by_name[client], size, defense, attack) if client in by_name else None
    return None


def _current(row: Row, identity: str) -> bool:
    """Whether a row still has the identity that it was measured under, and can be read at all."""
    try:
        return row.identity == identity
    except LeakgaugeError:
        return False


def available(rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """The rows whose data are on this machine, and for the other data sets what to type."""
    missing: dict[str, str] = {}
    for name in {row.client.data for row in rows}:
        try:
            data.load(name)
        except MissingDataError as fault:
            missing[name] = str(fault)
    return [row for row in rows if row.client.data not in missing], missing


def _measured(rows: Sequence[Row], store: Store, workers: int, report: Report | None) -> Iterator[tuple[Row, Score]]:
    source = _alone(rows, store) if workers == 1 else _together(rows, store, workers)
    for done, (row, score) in enumerate(source, start=1):
        if report is not None:
            report(done, len(rows), score)
        yield row, score


def _alone(rows: Sequence[Row], store: Store) -> Iterator[tuple[Row, Score]]:
    for row in rows:
        with one_thread():
            yield row, measured(row, store)


def _together(rows: Sequence[Row], store: Store, workers: int) -> Iterator[tuple[Row, Score]]:
    with pool(workers, _begin, (list(sys.path),)) as processes:
        try:
            futures = {processes.submit(measured, row, store): row for row in rows}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise LeakgaugeError(
                "a worker process died (out of memory?)",
                where="standings",
                remedy="the same command goes on with what is left; say --workers 1 if it happens again",
            ) from None


def _begin(path: list[str]) -> None:
    """Begin as every worker does, with the parent's path for the user's code."""
    begin_worker()
    sys.path[:] = path


__all__ = ["available", "gathered", "in_order", "own_objects", "run", "scores_of"]
