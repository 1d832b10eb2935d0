"""Files that would fill memory or never end: each is refused with one sentence, at once."""

from __future__ import annotations

import gzip
import os
import re
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib import format as npy
from PIL import Image
from torch import nn

from leakgauge.audit.judge.model import Result, RunError
from leakgauge.audit.run import claim
from leakgauge.audit.store import Store, StoreError
from leakgauge.data.cifar import read_cifar
from leakgauge.data.delimited import read_csv
from leakgauge.data.folder import MOST_PIXELS, read_folder
from leakgauge.data.idx import read_idx
from leakgauge.data.npz import read_npz
from leakgauge.errors import LeakgaugeError, nearest
from leakgauge.intervals import _resampled
from leakgauge.priors import Learned
from leakgauge.priors.generators import decoder_network, write_prior
from leakgauge.report.reading import Run
from leakgauge.storage.private import write
from leakgauge.storage.states import FileError, State, read_state
from leakgauge.storage.streams import PACKED
from leakgauge.study.spec import SpecError, of, table

MEGABYTE = 1 << 20


@contextmanager
def within(megabytes: int) -> Iterator[None]:
    """Python and numpy allocate no more than this at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * MEGABYTE
    finally:
        tracemalloc.stop()


def zeros(path: Path, arrays: dict[str, tuple[int, ...]]) -> None:
    """An npz of zeros, written without holding them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, shape in arrays.items():
            with archive.open(f"{name}.npy", "w") as stream:
                npy.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
                for _ in range(int(np.prod(shape)) // MEGABYTE):
                    stream.write(bytes(MEGABYTE))


def test_records_that_unpack_a_thousandfold(tmp_path: Path) -> None:
    zeros(tmp_path / "a.npz", {"inputs": (65, 1024, 1024), "labels": (0,)})
    assert (tmp_path / "a.npz").stat().st_size < MEGABYTE
    with within(10), pytest.raises(LeakgaugeError, match=r"unpacks \d+ bytes to \d+; save it unpacked"):
        read_npz(tmp_path / "a.npz")


def test_weights_of_many_members_that_are_small_each(tmp_path: Path) -> None:
    zeros(tmp_path / "a.npz", {f"w{i}": (5 * MEGABYTE,) for i in range(14)})  # each is far below the limit
    with within(10), pytest.raises(FileError, match=r"unpacks \d+ bytes to \d+; save it unpacked"):
        read_state(tmp_path / "a.npz")


def test_weights_that_ask_for_bytes_of_any_number(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x10\x85R.")
        archive.writestr("a/version", "3\n")
    with within(50), pytest.raises(FileError, match=r"asks for builtins\.bytearray"):
        read_state(tmp_path / "w.pt")


@pytest.mark.parametrize(
    "facts", [{"widths": [30_000, 30_000]}, {"codes": 1e400}, {"classes": "x"}, {"shape": [True, 4]}]
)
def test_a_prior_that_says_what_its_file_does_not_hold(tmp_path: Path, facts: dict[str, object]) -> None:
    said = {"family": "vae", "codes": 2, "classes": 3, "widths": [4], "shape": [1, 2, 2], "boxed": True, **facts}
    weights = dict(decoder_network(5, (4,), (1, 2, 2), True).state_dict())
    (tmp_path / "p.safetensors").write_bytes(write_prior(weights, said, torch.zeros(1, 1, 2, 2)))
    begun = time.process_time()
    with pytest.raises(FileError):
        Learned(str(tmp_path / "p.safetensors"))
    assert time.process_time() - begun < 2


def test_an_idx_that_unpacks_a_thousandfold(tmp_path: Path) -> None:
    path = tmp_path / "a-idx3.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(bytes((0, 0, 8, 3)) + struct.pack(">3I", 65, 1024, 1024))
        for _ in range(65):
            stream.write(bytes(MEGABYTE))
    assert 65 * MEGABYTE > PACKED
    with within(10), pytest.raises(LeakgaugeError, match="exceeds the size of the file"):
        read_idx(path)


def test_a_picture_of_too_many_pixels(tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    Image.new("1", (8192, 2 + MOST_PIXELS // 8192)).save(tmp_path / "data" / "a" / "x.png")
    with within(10), pytest.raises(LeakgaugeError, match=r"has 8192 x \d+ pixels; give pictures of at most"):
        read_folder(tmp_path / "data")


def test_pictures_that_are_small_files_and_large_together(tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    Image.new("1", (4096, 4096)).save(tmp_path / "data" / "a" / "0.png")
    for i in range(1, 8):
        os.link(tmp_path / "data" / "a" / "0.png", tmp_path / "data" / "a" / f"{i}.png")
    with within(200), pytest.raises(LeakgaugeError, match=r"its pictures unpack \d+ bytes to \d+"):
        read_folder(tmp_path / "data")


def _pictures(path: Path) -> object:
    folder = path.parent / "pictures" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    path.rename(folder / path.name)
    return read_folder(folder.parent)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "npz": ("a.npz", read_npz),
    "csv": ("a.csv", read_csv),
    "idx": ("a-idx3", read_idx),
    "cifar": ("a.bin", lambda path: read_cifar([path])),
    "picture": ("a.png", _pictures),
    "safetensors": ("a.safetensors", read_state),
    "weights npz": ("a.npz", read_state),
    "pt": ("a.pt", read_state),
    "spec": ("a.toml", table),
    "result": ("result.json", lambda path: Result.load(path.parent)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("device", [False, True])
def test_pipes_and_devices_are_refused(tmp_path: Path, reader: str, device: bool) -> None:
    name, read = READERS[reader]
    if device:
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / name)
    with pytest.raises((LeakgaugeError, RunError, SpecError), match="no regular file"):
        read(tmp_path / name)


def test_pipes_in_a_run_folder_stop_nothing(tmp_path: Path) -> None:
    for name in ("manifest.json", "timings.json", "plan.json", "log.jsonl"):
        os.mkfifo(tmp_path / name)
    run = Run(tmp_path, None)  # type: ignore[arg-type]
    assert run.manifest() == {}
    assert run.timings() == {}
    assert run.plan() == []
    with pytest.raises(OSError, match="log"):
        Store(tmp_path).log(event="start")


def test_sixty_thousand_foreign_names(tmp_path: Path) -> None:
    state = State({f"layer.{i}.weight": torch.zeros(1) for i in range(60_000)}, tmp_path / "a.pt")
    begun = time.process_time()
    misfits = state.misfits(nn.Sequential(*(nn.Linear(1, 1) for _ in range(20))))
    assert time.process_time() - begun < 5
    assert len(misfits) == 60_000 + 40
    assert sum("did you mean" in misfit for misfit in misfits) == 5


def test_a_name_of_a_megabyte_and_a_choice_of_many() -> None:
    begun = time.process_time()
    remedy = nearest("a" * MEGABYTE, [f"name{i}" for i in range(60_000)])
    assert time.process_time() - begun < 5
    assert re.search(r" and 599\d\d more$", remedy)
    assert nearest("lable", ["label", "other"]) == "did you mean 'label'?"


def test_two_billion_seeds_are_refused() -> None:
    spec = {"task": {"model": "mlp()"}, "defenses": {"a": "identity()"}, "checkpoints": {"seeds": 2_000_000_000}}
    with pytest.raises(SpecError, match=r"checkpoints\.seeds"):
        of(spec)


def test_intervals_of_many_records_are_drawn_in_blocks() -> None:
    with within(100):  # at once: 500 x 60,000 numbers, 240 MB, and their places as much
        _resampled(np.linspace(0, 1, 60_000), 500, np.random.default_rng(0))


def test_a_file_is_written_although_a_sweep_took_it_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, swept = os.replace, []

    def late(source: str, target: Path) -> None:
        if not swept:
            swept.append(source)
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    write(tmp_path / "a.json", b"whole")
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_files_of_a_run_folder_that_are_huge_and_take_no_room(tmp_path: Path) -> None:
    cells = tmp_path / "cells"
    cells.mkdir()
    for name in ("result.json", "plan.json", "log.jsonl", "environment.json", "cells/a.json"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"{")
            file.truncate(1 << 40)
    (cells / "b.json").write_text('{"tensors": "00"}')
    store = Store(tmp_path)
    with pytest.raises(RunError, match=r"result\.json: cannot be read \(has more than 256 MB\)"):
        Result.load(tmp_path)
    with pytest.raises(StoreError, match=r"a\.json: cannot be read \(has more than 256 MB\)"):
        store.result("a")
    with pytest.raises(StoreError, match="was begun in another environment"):
        claim(store)
    assert store.timings() == {}
    store.sweep()
    assert not list(cells.glob("*.json"))
