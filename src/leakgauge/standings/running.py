"""Measuring rows, in this process or in several; whatever is finished stays finished."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from pathlib import Path

import torch

from leakgauge import data
from leakgauge.audit.run import claim
from leakgauge.audit.store import Store
from leakgauge.errors import LeakgaugeError, MissingDataError
from leakgauge.standings.rows import Row, Score, measured
from leakgauge.standings.set_ups import Size, clients, planned
from leakgauge.storage.lock import locked
from leakgauge.storage.private import prepare
from leakgauge.threads import one_thread

Report = Callable[[int, int, Score], None]
"""Hears of every row: how many of how many, and its score."""


def run(rows: Sequence[Row], out: Path | str, *, workers: int = 1, report: Report | None = None) -> list[Score]:
    """Measure the rows that are not in the folder yet; their scores, in the order of the rows.

    Rows of a folder belong to one environment; the same call resumes.
    """
    folder = Path(out)
    prepare(folder)
    store = Store(folder)
    with locked(folder):
        claim(store)
        store.sweep()
        scores = dict(_measured(rows, store, workers, report))
    return [scores[row] for row in rows]


def gathered(out: Path | str, size: Size, *, own_code: bool = False) -> list[Score]:
    """Every row of a size in the folder that is still what it was measured as: ours in their order, then others.

    Rows that name somebody's own code are read, which imports it, only if ``own_code`` says so.
    """
    store, order = Store(Path(out)), {key: place for place, key in enumerate(planned(size, clients(size)))}
    scores = []
    for path in sorted((store.folder / "cells").glob("*.json")):
        raw = store.result(path.stem)
        if raw.get("kind") != "row" or raw["size"] != size.name:
            continue
        row = Row(clients(size, [raw["client"]])[0], size, raw["defense"], raw["attack"])
        if (own_code or not row.own) and _current(row, path.stem):
            scores.append(Score.of_json(row, raw))
    last = len(order)
    return sorted(scores, key=lambda one: order.get((one.row.client, one.row.defense, one.row.attack), last))


def _current(row: Row, identity: str) -> bool:
    """Whether a row would be measured as the same again: no part has another version now, or cannot be read."""
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
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (list(sys.path),))
    try:
        futures = {pool.submit(measured, row, store): row for row in rows}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        processes = list((pool._processes or {}).values())  # Python has no public name for them before 3.14
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()  # what it was writing is a temporary file; what is committed is whole


def _begin(path: list[str]) -> None:
    """One thread, the parent's path for the user's code, and an end when the parent ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    sys.path[:] = path


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


__all__ = ["available", "gathered", "run"]
