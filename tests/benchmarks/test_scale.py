"""Curves of cost: their exponents, the page computed from them, and what must not grow faster than its input."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cost import SYSTEMS, TEMPLATE, hours, page, step
from benchmarks.scale import CURVES, Point, _study, exponent
from leakgauge.audit import InProcess, LocalPool
from leakgauge.audit.cells import AttackCell
from leakgauge.audit.engines import local_pool
from leakgauge.audit.judge.result import result
from leakgauge.audit.plan import plan
from leakgauge.audit.run import execute
from leakgauge.audit.store import Store


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_exponents(power: float) -> None:
    points = [Point(x, 3.0 * x**power, 0.0) for x in (10, 30, 100, 300, 1000)]
    assert exponent(points) == pytest.approx(power)
    assert exponent(points[:2]) == pytest.approx(power)


def test_what_is_paid_once_does_not_hide_a_square() -> None:
    assert exponent([Point(x, 5.0 + 1e-3 * x**2, 0.0) for x in (10, 100, 1000, 10_000)]) > 1.7


def test_a_large_audit_from_curves() -> None:
    curves: dict[str, Any] = {
        "parameters": {"points": [{"x": 1000, "seconds": 40.0}, {"x": 10_000, "seconds": 400.0}]},
        "cells": {"points": [{"x": 10, "seconds": 1.0}, {"x": 100, "seconds": 3.6}]},
    }
    assert step(curves, 1000) == pytest.approx(1.0)
    assert step(curves, 20_000) == pytest.approx(20.0)  # linear beyond the last point
    attacks, rest = hours(curves, SYSTEMS[0])
    assert attacks == pytest.approx(3 * 6 * 100 * 1000 * step(curves, 1e5) / 3600)
    assert rest == pytest.approx(180 * 0.036 / 3600)


def test_the_page_has_its_tables() -> None:
    points = [{"x": x, "seconds": 0.1 * x, "megabytes": 300.0} for x in (10, 100)]
    curves = {name: {"about": curve.about, "points": points, "exponent": 1.0} for name, curve in CURVES.items()}
    text = page(TEMPLATE.read_text(encoding="utf-8"), curves)
    assert page(text, curves) == text
    assert all(curve.about in text for curve in CURVES.values())
    assert all(system.name in text for system in SYSTEMS)


def test_a_result_looks_at_every_cell_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the records must not cost four times: nobody goes through the plan for every record."""
    counted: list[AttackCell] = []
    plain = AttackCell.params.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(AttackCell, "params", property(lambda cell: (counted.append(cell), plain(cell))[1]))
    looks = {}
    for records in (30, 90):
        study, folder = _study(records), tmp_path / str(records)
        outcome = execute(study, folder, engine=InProcess())
        counted.clear()
        result(study, outcome, Store(folder))
        looks[records] = len(counted)
    assert looks[90] <= 3 * looks[30] + 10


def test_keeping_workers_busy_looks_at_few_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = list(plan(_study(400)).cells)
    looks: list[str] = []
    plain = local_pool.orphaned
    monkeypatch.setattr(local_pool, "orphaned", lambda cell, store: looks.append(cell.id) or plain(cell, store))  # type: ignore[func-returns-value]
    monkeypatch.setitem(local_pool._worker, "work", "ended")
    waiting, total, store = list(cells), len(cells), Store(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        while waiting:
            assert LocalPool(2)._submit(pool, waiting, {}, store, {})  # type: ignore[arg-type]
    assert len(looks) <= 2 * total
