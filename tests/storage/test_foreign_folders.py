"""Run folders that somebody else wrote: links do not lead out, pipes stop nothing, odd cells run again."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from leakgauge.audit.judge.model import Result, RunError
from leakgauge.audit.store import Store, StoreError
from leakgauge.data.npz import read_npz
from leakgauge.errors import DataError, DomainError, LeakgaugeError, ModelError
from leakgauge.expr import read
from leakgauge.guards import positive
from leakgauge.models import build
from leakgauge.storage.lock import locked
from leakgauge.storage.private import prepare, write
from leakgauge.storage.redaction import coarse
from leakgauge.study.spec import SpecError, load
from leakgauge.types import Domain


@pytest.mark.parametrize("name", ["cells", "claims", "log.jsonl"])
def test_a_link_in_a_run_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(LeakgaugeError, match=f"{name} is a link"):
        prepare(tmp_path / "run")


def test_a_log_and_a_lock_do_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "profile"
    for name in ("log.jsonl", ".lock"):
        (tmp_path / name).symlink_to(outside)
    with pytest.raises(OSError, match="log"):
        Store(tmp_path).log(event="start")
    with pytest.raises(LeakgaugeError, match="is a link"), locked(tmp_path):
        pass
    assert not outside.exists()


CELLS = {
    "a list": b"[1]",
    "nested": b"[" * 100_000,
    "NaN": b'{"scores": NaN}',
    "not UTF-8": b'{"a": "\xff"}',
    "empty": b"",
}


@pytest.mark.parametrize("name", CELLS)
def test_an_odd_cell_is_computed_again(tmp_path: Path, name: str) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a.json").write_bytes(CELLS[name])
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="cannot be read"):
        store.result("a")
    store.sweep()
    assert not store.done("a")


def test_a_pipe_or_a_folder_for_a_cell(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    os.mkfifo(tmp_path / "cells" / "a.json")
    Store(tmp_path).sweep()  # reading it would never end
    assert not list((tmp_path / "cells").iterdir())
    (tmp_path / "cells" / "b.json").mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path).sweep()


def test_lost_tensors_and_odd_logs_are_named(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a.safetensors").write_bytes(struct.pack("<Q", 1 << 40))
    for identity in ("a", "b"):
        with pytest.raises(StoreError, match="cannot be read"):
            Store(tmp_path).tensors(identity)
    good = '{"event":"done","cell":"a","seconds":1.5}'
    odd = ("[]", "3", '{"event":"done"}', '{"event":"done","cell":[],"seconds":1}', "{" * 5000, good[:20])
    (tmp_path / "log.jsonl").write_text("\n".join((*odd, good)))
    assert Store(tmp_path).timings() == {"a": 1.5}


def test_half_a_character_in_a_cell_does_not_stop_redaction(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a.json").write_text('{"kind": "attack", "x": "\\ud800"}')
    Store(tmp_path, redact=True)._redact()
    assert not (tmp_path / "cells" / "a.json").exists()


def test_a_result_of_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"schema": 1, "x": float("nan")}))
    with pytest.raises(RunError, match="NaN is no number"):
        Result.load(tmp_path)


def test_a_result_with_half_a_letter(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema": 1, "x": "\\ud800"}')
    with pytest.raises(RunError, match="surrogates not allowed"):
        Result.load(tmp_path)


def test_an_array_whose_header_never_ends(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': ((((1,)".ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        for name in ("inputs.npy", "labels.npy"):
            archive.writestr(name, content)
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(tmp_path / "d.npz")


def test_numbers_that_no_float_holds() -> None:
    with pytest.raises(DomainError, match=r"norm must lie in .*9…"):
        positive(10**400 - 1, "norm", "clip")
    for text in (f"{'9' * 400}*tv()", f"tv() + {'9' * 400}*pixel_range()", f"clip(norm={'9' * 400})"):
        reading = read(text, None)
        assert reading.value is None
        assert reading.faults
        assert all(len(str(fault)) < 1000 for fault in reading.faults)


def test_tables_in_tables(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"{'a.' * 900}b = 1\n")
    with pytest.raises(SpecError, match="nested too deeply"):
        load(tmp_path / "a.toml")


def test_a_network_of_too_many_layers() -> None:
    with pytest.raises(ModelError, match="depth is 65536; give at most 1000 layers"):
        build("mlp(width=1, depth=65536)", Domain("image", (1, 2, 2), 2))


def test_a_network_of_sizes_that_nothing_can_count() -> None:
    with pytest.raises(ModelError, match=r"width is 9{19}; give at most"):
        build(f"mlp(width={'9' * 19}, depth=1)", Domain("image", (1, 2, 2), 2))


def test_the_largest_float_is_redacted_to_a_number() -> None:
    assert coarse([1.79e308, -1.79e308, 0.123]) == [1.7e308, -1.7e308, 0.12]


@pytest.mark.parametrize("name", ["cells", "claims"])
def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("no folder")
    with pytest.raises(LeakgaugeError, match=f"{name} is no folder; remove it"):
        prepare(tmp_path)


def test_what_cannot_be_written_is_named_and_not_its_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(OSError, match="directory") as raised:
        write(tmp_path / "plan.json", b"[]")
    assert str(raised.value).endswith(f"Is a directory: '{tmp_path / 'plan.json'}'")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_names_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: opened("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match=r"No space left on device: '.*log\.jsonl'"):
        Store(tmp_path).log(event="start")
