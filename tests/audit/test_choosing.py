"""The choice of ``standard()`` in an audit: a cell like any other, blind to the reported records."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.attacks.choosing import EFFORTS, Effort
from leakgauge.audit import audit
from leakgauge.audit.cells import TuneCell
from leakgauge.audit.estimate import estimate
from leakgauge.audit.judge.model import Result
from leakgauge.audit.plan import plan
from leakgauge.study import Draft, Study, of
from leakgauge.types import Domain, Records

TINY = Effort(first=2, unit=4, look=2, keep=2, extend=1, several=2, records=4)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "quick", TINY)


def records(count: int, seed: int) -> Records:
    generator = torch.Generator().manual_seed(seed)
    return Records(
        torch.rand(count, 1, 6, 6, generator=generator), torch.arange(count) % 4, Domain("image", (1, 6, 6), 4)
    )


def study(seed: int = 1, reference: int = 30, **options: Any) -> Study:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(16, 4))
    return Study(
        model,
        records(8, seed),
        reference=records(reference, 77),
        defenses=options.pop("defenses", {"none": "identity()", "noisy": "gaussian(std=0.01)"}),
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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Result, Path]]:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFORTS, "quick", TINY)
        yield audit(study(), folder), folder


def test_the_choice_is_made_once_per_defense_and_told_in_the_ledger(run: tuple[Result, Path]) -> None:
    result, folder = run
    assert sorted(choices(folder)) == ["gaussian(std=0.01)", "identity()"]
    for defense in result.checkpoints[0].defenses:
        (adversary,) = defense.adversaries
        assert adversary.expression == "standard(work='quick')"
        assert "version 9: the attack was tuned" in adversary.tuned[0]
        assert any(f"on {count} other updates" in adversary.tuned[0] for count in (4, 8))
    lines = [line.assumes for line in result.ledger if line.number == "standard against noisy"]
    assert any(re.search(r"version 9: chose (staged|raced)\(", line) for line in lines)


def test_no_reported_record_influences_a_choice(run: tuple[Result, Path], tmp_path: Path) -> None:
    audit(study(2, defenses={"none": "identity()"}), tmp_path)
    for defense, choice in choices(tmp_path).items():
        assert choice == choices(run[1])[defense]  # to the byte, identity of the cell included
    reported = [json.loads((folder / "manifest.json").read_text())["reported"] for folder in (run[1], tmp_path)]
    assert reported[0] != reported[1]


def test_a_choice_that_was_lost_is_made_again_to_the_byte(run: tuple[Result, Path]) -> None:
    folder = run[1]
    chosen = next(cell for cell in plan(study()).cells if isinstance(cell, TuneCell))
    path = folder / "cells" / f"{chosen.id}.json"
    first = path.read_bytes(), (folder / "result.json").read_bytes()
    path.unlink()
    audit(study(), folder)
    assert (path.read_bytes(), (folder / "result.json").read_bytes()) == first


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"chosen": "planted:Evil()"}, "chooses code that the study does not name: planted:Evil"),
        ({"tried": None}, "is no choice of an attack"),
        ({"rungs": 3}, "is no choice of an attack"),
    ],
)
def test_a_choice_in_a_run_folder_runs_no_code(
    run: tuple[Result, Path], changes: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "run"
    shutil.copytree(run[1], folder)
    cells = {path: json.loads(path.read_text()) for path in (folder / "cells").glob("*.json")}
    for path, cell in cells.items():
        if cell["kind"] == "tune":
            path.write_text(json.dumps({**cell, **changes}))
        else:
            path.unlink()
    faults: list[str | None] = []
    audit(study(), folder, report=lambda event: faults.append(event.fault))
    assert all(fault and sentence in fault for fault in faults)
    assert faults
    assert not (tmp_path / "ran").exists()


def test_with_too_few_reference_records_the_fixed_portfolio_attacks_and_that_is_told(tmp_path: Path) -> None:
    few = audit(study(reference=8, defenses={"none": "identity()"}), tmp_path)
    (adversary,) = few.checkpoints[0].defenses[0].adversaries
    (sentence,) = adversary.tuned
    assert "its fixed portfolio attacks: 2 reference updates are too few" in sentence


def test_a_check_counts_the_choice_and_times_it(tmp_path: Path) -> None:
    raw = {
        "task": {"model": "cnn_13700", "records": 7},
        "adversaries": {"standard": "standard(work='quick')"},
        "leave_out": ["generic"],
    }
    counted = estimate(Draft.of(of(raw), tmp_path / "spec.toml"))
    assert counted.counts["tuning"] == 1
    assert counted.counts["attack"] == 3
    assert counted.seconds is not None
    assert counted.seconds > 0


def test_reference_records_are_taken_for_a_choice_only_as_far_as_they_reach() -> None:
    assert len(study().tuning) == 2 * TINY.records
    assert len(study(reference=8).tuning) == 2  # as many as are reported remain
