"""Reports of tables: rows side by side, categories by name, which features leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from leakgauge.audit.judge.values import Feature, Kind
from leakgauge.report import html, markdown, read
from leakgauge.report.columns import columns
from leakgauge.report.exhibits import exhibits
from leakgauge.report.features import MOST, lines, nearest
from tests.report.samples import N, defense, make

AGE = {"name": "age", "spread": 1.0, "offset": 40.0, "unit": 10.0}
COLOUR = {"name": "colour", "categories": ["red", "green", "blue"]}
DOMAIN = {"kind": "table", "shape": [4], "classes": 2, "features": [AGE, COLOUR], "tolerance": 0.1}
SHARE = {
    "name": "feature_share",
    "label": "share of features",
    "title": "share of features recovered",
    "threshold": 0.75,
}
ORIGINAL = np.array([[0.5, 0, 1, 0]] * N, np.float32)  # 45 years, green
NEAR = np.array([[0.55, 0.1, 0.8, 0.3]] * N, np.float32)
FAR = np.array([[-2.0, 0.4, 0.3, 0.4]] * N, np.float32)


def table(folder: Path, **changes: Any) -> Path:
    leaks = [{"name": "age", "right": 1.0, "null": 0.2, "error": 0.05}, {"name": "colour", "right": 0.8, "null": 0.4}]
    hides = [{"name": "age", "right": 0.0, "null": 0.2, "error": 2.5}, {"name": "colour", "right": 0.4, "null": 0.4}]
    entries = [
        {**defense("none", "recognisable"), "columns": leaks},
        {**defense("noisy", "no evidence"), "columns": hides},
    ]
    given = {"metric": "feature_share", "metrics": [SHARE], "domain": DOMAIN, **changes}
    make(folder, checkpoints=[{"step": 0, "accuracy": None, "defenses": entries}], **given)
    save_file({"inputs": ORIGINAL, "labels": np.arange(N)}, folder / "records.safetensors")
    save_file({"inputs": NEAR}, folder / "cells" / "aa.safetensors")
    save_file({"inputs": FAR}, folder / "cells" / "bb.safetensors")
    return folder


def test_a_row_is_read_in_the_units_of_its_source_and_categories_by_name(tmp_path: Path) -> None:
    run = read(table(tmp_path / "run"))
    first = exhibits(run, run.result.defenses["none"])[0]
    age, colour = first.lines
    assert (age.original, age.reconstruction, age.null) == ("45", "45.5", "20")
    assert age.right
    assert age.error == pytest.approx(0.05, abs=1e-6)
    assert (colour.original, colour.reconstruction, colour.null) == ("green", "green", "?")  # no largest entry
    assert colour.distance == "right"
    assert not first.pictures


def test_the_page_shows_rows_and_features_instead_of_pictures(tmp_path: Path) -> None:
    page = html(read(table(tmp_path / "run")))
    assert "<img" not in page
    assert "45.5 ✓" in page
    assert 'id="columns"' in page
    assert "at least share of features 0.5" in page
    text = markdown(read(table(tmp_path / "other")))
    assert "| age | 100 % (20 %) | 0 % (20 %) |" in text
    assert "## Which features leak" in text


def test_a_redacted_table_shows_no_row_but_still_which_features_leak(tmp_path: Path) -> None:
    page = html(read(table(tmp_path / "run"), redact=True))
    assert "45.5" not in page
    assert "green" not in page
    assert 'id="columns"' in page


def test_what_leaks_most_comes_first(tmp_path: Path) -> None:
    found = columns(read(table(tmp_path / "run")).result)
    assert found is not None
    assert [name for name, _ in found.rows] == ["age", "colour"]
    assert found.defenses == ("none", "noisy")
    assert columns(read(make(tmp_path / "images")).result) is None


def test_hostile_names_of_features_are_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    features = [{**AGE, "name": hostile}, {**COLOUR, "categories": [hostile, "g", "b"]}]
    page = html(read(table(tmp_path / "run", domain={**DOMAIN, "features": features})))
    assert hostile not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("features", [[AGE], [AGE, COLOUR, AGE], [], [COLOUR]])
def test_features_that_do_not_fit_the_rows_never_break_a_report(tmp_path: Path, features: list[Any]) -> None:
    assert html(read(table(tmp_path / "run", domain={**DOMAIN, "features": features})))


def test_of_many_features_those_recovered_best_are_listed() -> None:
    wide = Kind(kind="table", features=tuple(Feature(name=f"f{i}") for i in range(100)), tolerance=0.1)
    gaps = np.linspace(1, 0, 100, dtype=np.float32)
    every = lines(wide, np.zeros(100, np.float32), gaps, gaps)
    assert [line.name for line in nearest(every)] == [f"f{i}" for i in range(100 - MOST, 100)]


def test_a_feature_without_spread_is_right_only_if_it_is_the_same() -> None:
    domain = Kind(kind="table", features=(Feature(name="c", spread=0.0),), tolerance=0.1)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    (same,), (other,) = lines(domain, one, one, one), lines(domain, one, zero, one)
    assert same.right
    assert not other.right
    assert other.distance == "wrong"
