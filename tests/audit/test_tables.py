"""Audits of tables, from a spec to the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakgauge.audit import Result, audit
from leakgauge.report import html, markdown, read
from leakgauge.study import Study, of

SEARCHED = "adversary(likelihood=cosine(), prior=0.001*gaussian_prior(std=1.0), solver=adam(lr=0.1, steps=20))"
SPEC: dict[str, Any] = {
    "seed": 1,
    "task": {"model": "mlp(width=16, depth=1)", "data": "people.npz", "records": 8},
    "defenses": {"none": "identity()", "drowned": "clip(norm=1.0) | gaussian(std=3.0)"},
    "adversaries": {"adaptive": "adaptive(steps=20)", "searched": SEARCHED},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(400, 6)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    np.savez(folder / "people.npz", inputs=inputs, labels=labels)
    return folder


@pytest.fixture(scope="module")
def result(home: Path) -> Result:
    return audit(Study.of(of(SPEC), home), home / "run")


def test_a_table_without_a_defense_is_exact_and_much_noise_leaves_no_evidence(result: Result) -> None:
    assert result.verdicts == {"none": "exact", "drowned": "no evidence"}
    assert result.metric == "feature_share"
    assert result.defenses["none"].attack.why.endswith(" correct digits")
    bound = result.bounds["drowned"]
    assert bound is not None
    assert bound.ceiling is not None
    assert bound.ceiling < 0.5


def test_every_column_is_named_and_leaks_without_a_defense(result: Result) -> None:
    assert [column.right for column in result.defenses["none"].columns] == [1.0] * 6
    assert sum(column.right for column in result.defenses["drowned"].columns) < 3
    assert len(result.domain.features) == 6


def test_the_report_has_rows_instead_of_pictures(result: Result, home: Path) -> None:
    run = read(home / "run")
    assert "<img" not in html(run)
    assert 'class="features"' in html(run)
    assert "Which features leak" in markdown(run)


def test_the_threshold_and_the_tolerance_may_be_given(result: Result, home: Path) -> None:
    """A stricter tolerance is another measurement: its cells are its own."""
    spec = of({**SPEC, "verdict": {"recognisable": {"feature_share(tolerance=0.01)": 0.9}}})
    strict = audit(Study.of(spec, home), home / "strict")
    assert strict.thresholds.recognisable == 0.9
    assert strict.domain.tolerance == 0.01
    assert {r.cell for rows in strict.records.values() for r in rows}.isdisjoint(
        r.cell for rows in result.records.values() for r in rows
    )


def test_a_batch_of_rows_is_matched(home: Path) -> None:
    batch = {**SPEC["task"], "recipe": {"batch": 2}}
    found = audit(Study.of(of({**SPEC, "task": batch, "defenses": {"none": "identity()"}}), home), home / "batch")
    assert len(found.records["none"]) == 16
    assert found.verdicts["none"] not in ("incomplete", "invalid")
