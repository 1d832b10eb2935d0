"""The figures of the docs are those of the stored results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_figures", ROOT / "docs" / "make_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figure_1_is_drawn_from_its_evidence() -> None:
    made = figures()
    rows = json.loads(made.SOURCE.read_text(encoding="utf-8"))["table"]
    assert made.FIGURE.read_text(encoding="utf-8") == made.figure(rows), "run python docs/make_figures.py"
    assert made.figure(rows).count('class="gaussian"') == made.figure(rows).count('class="vmf"') > 20


def test_utility_against_privacy_is_drawn_from_its_evidence() -> None:
    made = figures()
    trained, attacked = made.stored("utility"), made.stored("utility_leak")
    drawn = made.utility(trained, attacked)
    assert made.UTILITY.read_text(encoding="utf-8") == drawn, "run python docs/make_figures.py"
    names = {row["defense"] for row in trained if row["steps"] == max(r["steps"] for r in trained)}
    assert len(names) > 20
    assert all(drawn.count(f"<title>{name}: accuracy ") == 1 for name in names)
    # one hollow mark for each worst record, and one that explains it
    assert drawn.count('class="mark open') == len(names) + 1
