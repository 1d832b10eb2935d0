"""Every reproduction at its smallest scale shows what its paper claims; none is missing, none is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakgauge.papers.catalogue import table_of, tables
from leakgauge.papers.contract import SCALES, Table
from leakgauge.papers.running import run

TABLES = tables()
LISTED = {
    "bayes": "table-1 table-2 table-2-step-500 table-2-cifar10 table-2-cifar10-step-500 table-5 table-6 "
    "figure-2 figure-3 figure-4 figure-5 figure-6 figure-7 a-7",
    "gradattack": "figure-1 figure-2 table-2 table-2-utility table-3 table-5 mnist lemma-b-1",
    "capacity": "figure-1 figure-2 theorem-iii-1 theorem-iv-1",
    "lrp": "table-1 table-2 table-3 figure-2 figure-3 figure-4 figure-5 theorem-1 scale-free local-steps",
    "beyond": "peeling spear",
    "idlg": "table-1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: tables that need the same unit of work share it."""
    return tmp_path_factory.mktemp("papers")


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.sizes])
def test_the_smoke_run_shows_what_is_claimed(name: str, folder: Path) -> None:
    outcome = run(TABLES[name], "smoke", folder)
    assert not outcome.faults
    assert outcome.holds, [(row.name, row.paper, row.ours) for row in outcome.rows if row.claim]


def test_no_table_is_silently_missing() -> None:
    assert set(TABLES) == {f"{paper}/{one}" for paper, names in LISTED.items() for one in names.split()}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_a_table_is_whole(table: Table) -> None:
    """Whatever cannot be run says why; whatever can has work at every scale, and cells that its claims speak of."""
    assert table.title
    assert table.cells
    assert len({cell.name for cell in table.cells}) == len(table.cells)
    assert all(size.work for size in table.sizes.values())
    assert set(table.sizes) <= set(SCALES)
    if table.sizes:
        assert table.measure is not None
        assert not table.missing
        assert {"smoke", "small"} <= set(table.sizes)
        assert any(cell.claim for cell in table.cells)
    else:
        assert table.missing


def test_a_table_is_found_by_its_name_or_the_nearest_is_named() -> None:
    assert table_of("bayes/table-2").name == "bayes/table-2"
    with pytest.raises(Exception, match="bayes/table-2"):
        table_of("bayes/tabel-2")
