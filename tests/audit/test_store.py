"""The run folder: whole files or none, private, and readable again."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch

from leakgauge.audit.store import Store, StoreError, canonical, write


def test_a_cell_is_done_when_both_files_are_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not store.done("a")
    store.commit("a", {"x": 1.5}, {"t": torch.arange(3)})
    assert store.done("a")
    assert store.result("a")["x"] == 1.5
    assert torch.equal(store.tensors("a")["t"], torch.arange(3))


def test_files_are_private(tmp_path: Path) -> None:
    Store(tmp_path).commit("a", {}, {"t": torch.zeros(1)})
    for path in (tmp_path / "cells").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write(path, b"old")
    monkeypatch.setattr("leakgauge.storage.private.os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full") as raised:
        write(path, b"new")
    assert raised.value.filename == str(path)  # a full disk does not say where
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_what_a_killed_run_left_half_written_is_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.commit("a", {}, {"t": torch.zeros(1)})
    (tmp_path / "cells" / ".b.json.x1234_ab").write_text("half")
    store.sweep()
    assert {p.name for p in (tmp_path / "cells").iterdir()} == {"a.json", "a.safetensors"}


def test_a_broken_cell_says_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write(store.cell("a"), b"{half")
    with pytest.raises(StoreError, match="delete it"):
        store.result("a")


def test_canonical_text_does_not_depend_on_order() -> None:
    assert canonical({"b": 1, "a": [0.1]}) == canonical({"a": [0.1], "b": 1}) == '{"a":[0.1],"b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canonical(float("nan"))
