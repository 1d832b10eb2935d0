"""What a run folder keeps for the report, and what a redacted one does not."""

from __future__ import annotations

from pathlib import Path

import torch

from leakgauge.audit.store import RECORDS, Store
from leakgauge.report import reading
from leakgauge.report.reading import Run, read
from tests.report.samples import make


def test_the_originals_are_kept_as_a_private_file(tmp_path: Path) -> None:
    inputs, labels = torch.rand(3, 1, 4, 4), torch.arange(3)
    Store(tmp_path).keep(inputs, labels)
    path = tmp_path / RECORDS
    assert path.stat().st_mode & 0o777 == 0o600
    run = Run(tmp_path, read(make(tmp_path / "run")).result)
    seen = run.original(1)
    assert seen is not None
    assert torch.equal(torch.from_numpy(seen), inputs[1])
    assert reading.RECORDS == RECORDS


def test_a_redacted_store_keeps_scores_only(tmp_path: Path) -> None:
    inputs, labels = torch.rand(3, 1, 4, 4), torch.arange(3)
    Store(tmp_path).keep(inputs, labels)
    redacted = Store(tmp_path, redact=True)
    redacted.keep(inputs, labels)
    redacted.commit("ab", {"scores": {}}, {"inputs": inputs})
    assert redacted.done("ab")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["ab.json"]
