"""The real rows, checks and texts: complete, and in step with the stored results."""

from __future__ import annotations

import re

import pytest

from evidence.cli import ROOT
from evidence.page import pages
from evidence.registry import CHECKS, load_checks
from evidence.rows import load_rows, problems
from evidence.sources import Sources
from evidence.state import fingerprint
from evidence.store import ABSOLUTE, Store


def test_every_row_has_its_checks_and_every_check_its_row() -> None:
    assert load_checks() == []
    real = {name: check for name, check in CHECKS.items() if check.function.__module__.startswith("evidence.")}
    assert problems(load_rows(), real) == []


@pytest.fixture(scope="module")
def sources() -> Sources:
    load_checks()
    return Sources(ROOT)


def test_texts_equal_what_is_generated_from_the_stored_results(sources: Sources) -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in pages(load_rows(), CHECKS, Store(ROOT), sources).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "a result became older than the code, or a text was edited: run python -m evidence --page"


def test_every_import_of_a_check_leads_somewhere(sources: Sources) -> None:
    missing = {name: fingerprint(CHECKS[name], sources).missing for row in load_rows() for name in row.checks}
    assert {name: names for name, names in missing.items() if names} == {}


def test_stored_results_belong_to_rows_and_name_no_path_of_a_machine() -> None:
    listed = {name for row in load_rows() for name in row.checks}
    for path in Store(ROOT).folder.glob("*.json"):
        assert path.stem in listed
        assert not ABSOLUTE.search(path.read_text(encoding="utf-8")), path.name


def test_no_number_of_a_tracker_is_shown() -> None:
    texts = [ROOT / "docs" / "evidence.md", *(ROOT / "evidence").rglob("*.toml"), *Store(ROOT).folder.glob("*.json")]
    assert [path.name for path in texts if re.search(r"\bissues?\b", path.read_text(encoding="utf-8"), re.I)] == []
