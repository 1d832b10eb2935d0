"""The rows that come with leakgauge, and their page."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

from leakgauge.standings import planned, published
from leakgauge.standings.set_ups import CLIENTS, SIZES

FULL = SIZES["full"]
ROWS = published(FULL)
DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_published_rows_are_planned_ones() -> None:
    rows = [(score.row.client, score.row.defense, score.row.attack) for score in ROWS]
    assert rows
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(planned(FULL, CLIENTS))


def test_a_published_row_has_its_records_an_interval_and_a_command() -> None:
    for score in ROWS:
        if score.fault:
            continue
        between = score.interval
        assert len(score.ssim) == len(score.psnr) == FULL.updates * score.row.client.batch
        assert all(map(math.isfinite, score.ssim))
        assert between.low <= between.mean <= between.high <= 1
        assert score.row.command.startswith(f"leakgauge standings --client {score.row.client.name} ")


def test_the_page_is_that_of_the_published_rows() -> None:
    spec = importlib.util.spec_from_file_location("make_standings", DOCS / "make_standings.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run python docs/make_standings.py"
    drawing = script.picture(ROWS)
    assert script.PICTURE.read_text(encoding="utf-8") == drawing, "run python docs/make_standings.py"
