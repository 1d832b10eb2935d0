"""The choice of ``standard()`` in an audit: a cell like any other, blind to the reported records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.audit import audit
from leakgauge.audit.cells import TuneCell
from leakgauge.audit.plan import plan
from leakgauge.attacks.choosing import EFFORTS, Effort
from leakgauge.study import Study
from leakgauge.types import Domain, Records

TINY = Effort(first=2, unit=4, look=2, keep=2, extend=1, finish=1, finalists=2, records=4)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "quick", TINY)


def records(count: int, seed: int) -> Records:
    generator = torch.Generator().manual_seed(seed)
    return Records(torch.rand(count, 1, 6, 6, generator=generator), torch.arange(count) % 4, Domain("image", (1, 6, 6), 4))


def study(seed: int = 1, reference: int = 30, **options: Any) -> Study:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(16, 4))
    return Study(
        model,
        records(8, seed),
        reference=records(reference, 77),
        defenses={"none": "identity()", "noisy": "gaussian(std=0.01)"},
        adversaries={"standard": "standard(work='quick')"},
        updates=6,
        leave_out=["generic"],
        verdict={"significance": 0.5},
        **options,
    )


def choices(folder: Path) -> dict[str, bytes]:
    cells = [json.loads(path.read_text()) for path in sorted((folder / "cells").glob("*.json"))]
    chosen = {cell["params"]["defense"]: cell for cell in cells if cell["kind"] == "tune"}
    return {defense: json.dumps(cell, sort_keys=True).encode() for defense, cell in chosen.items()}


def test_the_choice_is_made_once_per_defense_and_told_in_ledger_and_report(tmp_path: Path) -> None:
    result = audit(study(), tmp_path / "run")
    kept = choices(tmp_path / "run")
    assert sorted(kept) == ["gaussian(std=0.01)", "identity()"]
    for defense in result.checkpoints[0].defenses:
        (adversary,) = defense.adversaries
        assert adversary.expression == "standard(work='quick')"
        assert "the attack was tuned" in adversary.tuned[0] and "on 4 other updates" in adversary.tuned[0]
    lines = [line.assumes for line in result.ledger if line.number == "standard against noisy"]
    assert any("version 1: chose staged(" in line or "version 1: chose best_of(" in line for line in lines)


def test_no_reported_record_influences_a_choice(tmp_path: Path) -> None:
    for place, seed in enumerate((1, 2)):
        audit(study(seed), tmp_path / str(place))
    assert choices(tmp_path / "0") == choices(tmp_path / "1")  # to the byte, identity of the cell included
    reported = [json.loads((tmp_path / str(place) / "manifest.json").read_text())["reported"] for place in (0, 1)]
    assert reported[0] != reported[1]


def test_a_choice_resumes_and_repeats_to_the_byte(tmp_path: Path) -> None:
    audit(study(), tmp_path / "run")
    first = (tmp_path / "run" / "result.json").read_bytes()
    cells = {cell.id: cell for cell in plan(study()).cells}
    chosen = next(cell for cell in cells.values() if isinstance(cell, TuneCell))
    lost = [chosen.id, *(cell.id for cell in cells.values() if chosen.id in cell.parents)]
    for identity in lost:
        (tmp_path / "run" / "cells" / f"{identity}.json").unlink()
    audit(study(), tmp_path / "run")
    assert (tmp_path / "run" / "result.json").read_bytes() == first


def test_with_too_few_reference_records_the_fixed_portfolio_attacks_and_that_is_told(tmp_path: Path) -> None:
    few = audit(study(reference=8), tmp_path / "run")
    (adversary,) = few.checkpoints[0].defenses[0].adversaries
    (sentence,) = adversary.tuned
    assert "its fixed portfolio attacks: 2 reference updates are too few" in sentence
