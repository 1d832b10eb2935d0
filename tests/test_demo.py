"""The demo, in small: an attack, its null, the table, the picture, and files that only their owner can read."""

from __future__ import annotations

import importlib
import queue
import stat
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

import leakgauge as lg

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("demo")


def test_an_attack_reports_its_steps_and_finds_the_labels(demo: ModuleType) -> None:
    beat: queue.Queue[int] = queue.Queue()
    inputs, labels = demo.reconstruct(demo.Cell("identity()", "generic"), 20, beat)
    assert sum(beat.queue) == 20
    assert labels.tolist() == demo.private_records().labels.tolist()
    assert inputs.shape == demo.private_records().inputs.shape


def test_the_null_depends_on_the_size_of_an_update_and_on_nothing_else(demo: ModuleType) -> None:
    records = demo.private_records()
    task = lg.Task(lg.models.build("logistic", records.domain), records.domain).protect("prune(p=0.9)")
    first, second = lg.observe(task, records[:2])
    ratio = {n: second.rounds[0].observed[n].norm() / o.norm() for n, o in first.rounds[0].observed.items()}
    nulls = [demo.without_information(task, seen, 7).rounds[0].observed for seen in (first, second)]
    for name, null in nulls[0].items():
        torch.testing.assert_close(null * ratio[name], nulls[1][name])
        assert 0.85 < float((null == 0).double().mean()) < 0.95  # protected as usual


def test_table_and_picture_show_every_protection(demo: ModuleType, tmp_path: Path) -> None:
    records = demo.private_records()
    guess = dict.fromkeys(demo.ROLES, records.inputs * 0.9)
    psnr = {role: lg.metrics.psnr(inputs, records.inputs) for role, inputs in guess.items()}
    rows = [demo.Row(protection, guess, psnr, 0.9, "6/6") for protection in demo.PROTECTIONS]
    head, body = demo.lines(rows)
    text = demo.markdown(head, body)
    assert len(body) == len(rows) + 1
    assert "Membership and property inference are not tested" in " ".join(text.split())
    path = tmp_path / "picture.png"
    path.write_text("an older file that everybody may read")
    demo.write(path, demo.picture(rows))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Image.open(path) as picture:
        picture.load()
        assert picture.width > 1000
        assert picture.height > 100 * len(rows)
