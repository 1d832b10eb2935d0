"""Weights and update files: what is read, and that hostile ones are one clear message: no code, no memory, no trace."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from leakgauge.storage.states import FileError, metadata_of, read_state

MODEL = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
STATE = {name: value.clone() for name, value in MODEL.state_dict().items()}


def written(folder: Path, ending: str) -> Path:
    path = folder / f"w{ending}"
    if ending == ".safetensors":
        save_file(STATE, path, metadata_of("state", round=3, client="é"))
    elif ending == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in STATE.items()})
    else:
        torch.save(STATE, path)
    return path


ENDINGS = (".safetensors", ".npz", ".pt", ".pth")


@pytest.mark.parametrize("ending", ENDINGS)
def test_reads_what_was_written(tmp_path: Path, ending: str) -> None:
    state = read_state(written(tmp_path, ending))
    assert state.tensors.keys() == STATE.keys()
    assert all(torch.equal(state.tensors[name], value) for name, value in STATE.items())
    state.into(MODEL)


def test_metadata(tmp_path: Path) -> None:
    state = read_state(written(tmp_path, ".safetensors"))
    assert (state.kind, state.fact("round"), state.fact("client"), state.fact("sign")) == ("state", 3, "é", None)
    save_file(STATE, tmp_path / "odd.safetensors", {"kind": "gradeint", "round": "two"})
    odd = read_state(tmp_path / "odd.safetensors")
    assert odd.fact("round") == "two"
    with pytest.raises(FileError, match="did you mean 'gradient'"):
        _ = odd.kind


def test_misfits_are_listed_together(tmp_path: Path) -> None:
    given_ = {**STATE, "0.weight": torch.zeros(2, 4), "1.bias": torch.zeros(2, dtype=torch.int64)}
    given_["0.bais"] = given_.pop("0.bias")
    save_file(given_, tmp_path / "w.safetensors")
    with pytest.raises(FileError) as fault:
        read_state(tmp_path / "w.safetensors").into(MODEL)
    for part in ("'0.bias' is missing", "did you mean '0.bias'", "shape (2, 4)", "'1.bias' holds int64"):
        assert part in str(fault.value)


def test_a_gradient_is_no_weights(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "g.safetensors", metadata_of("gradient"))
    with pytest.raises(FileError, match="holds a gradient, not weights"):
        read_state(tmp_path / "g.safetensors").into(MODEL)


# --- hostile files: each one FileError that names the file


def safetensors_bytes(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def entry(shape: list[int], end: int, dtype: str = "F32") -> bytes:
    return json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()


def npy_bytes(shape: tuple[int, ...], descr: str = "<f4", body: bytes = b"") -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def zipped(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def saved(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def edited(change: Callable[[bytes], bytes]) -> bytes:
    """A ``.pt`` of one tensor of 6 floats, its pickle changed."""
    with zipfile.ZipFile(io.BytesIO(saved({"a": torch.arange(6.0)}))) as archive:
        return zipped(
            {n: change(archive.read(n)) if n.endswith("data.pkl") else archive.read(n) for n in archive.namelist()}
        )


def aligned(number: bytes) -> bytes:
    """A ``.pt`` of two tensors that says this alignment: torch divides by it, and 0 would end the process."""
    with zipfile.ZipFile(io.BytesIO(saved({"a": torch.zeros(2), "b": torch.ones(2)}))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(members)).partition("/")[0]
    return zipped({**members, f"{root}/.storage_alignment": number})


def sized(raw: bytes, stride: bytes = b"K\x01\x85") -> bytes:
    """The size of the tensor becomes 1.9 billion; with stride 0 its storage need not grow."""
    at = raw.rindex(b"K\x06")
    raw = raw[:at] + b"J\x00\x00\x00\x70" + raw[at + 2 :]
    at = raw.rindex(b"K\x01\x85")
    return raw[:at] + stride + raw[at + 3 :]


def nested_tuples(depth: int) -> bytes:
    """A tuple of the same tuple twice, and so on: its hash takes ``2 ** depth`` steps."""
    pairs = (b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(depth))
    return b"K\x01q\x00" + b"".join(pairs)


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch ran",)


VIEWED = torch.zeros(100_000)
NAN = {"w": torch.tensor([1.0, float("nan")])}
HOSTILE: dict[str, tuple[str, bytes]] = {
    "empty": (".safetensors", b""),
    "not safetensors": (".safetensors", b"hello, this is a text of some length"),
    "header longer than the file": (".safetensors", struct.pack("<Q", 1 << 62) + b"{}"),
    "header is no json": (".safetensors", safetensors_bytes(b"{" * 50)),
    "nested": (".safetensors", safetensors_bytes(b"[" * 100_000)),
    "huge shape": (".safetensors", safetensors_bytes(entry([1 << 40], 1 << 42))),
    "overflowing shape": (".safetensors", safetensors_bytes(entry([1 << 62, 1 << 62], 8), b"12345678")),
    "shape and size disagree": (".safetensors", safetensors_bytes(entry([3], 4), b"1234")),
    "unknown type": (".safetensors", safetensors_bytes(entry([1], 4, "F99"), b"1234")),
    "non-UTF-8 metadata": (".safetensors", safetensors_bytes(b'{"__metadata__":{"kind":"\xff\xfe"}}')),
    "metadata is no text": (".safetensors", safetensors_bytes(b'{"__metadata__":{"kind":3}}')),
    "no tensors": (".safetensors", safetensors_bytes(b"{}")),
    "no zip": (".npz", b"PK\x03\x04 and then nothing"),
    "empty zip": (".npz", zipped({})),
    "npy of objects": (".npz", zipped({"w.npy": npy_bytes((1,), "|O", b"cos\nsystem\n(S'touch ran'\ntR.")})),
    "npy of text": (".npz", zipped({"w.npy": npy_bytes((1,), "<U1", b"abcd")})),
    "npy of complex": (".npz", zipped({"w.npy": npy_bytes((1,), "<c8", b"12345678")})),
    "huge npy": (".npz", zipped({"w.npy": npy_bytes((1 << 40,), body=b"1234")})),
    "negative npy": (".npz", zipped({"w.npy": npy_bytes((-1,), body=b"1234")})),
    "npy header runs code": (".npz", zipped({"w.npy": npy_bytes((1,)).replace(b"(1,)", b"a()", 1)})),
    "no npy": (".npz", zipped({"w.npy": b"something else"})),
    "bomb": (".npz", zipped({"w.npy": npy_bytes((65 << 18,), body=bytes(65 << 20))}, zipfile.ZIP_DEFLATED)),
    "bzip2": (".npz", zipped({"w.npy": npy_bytes((1,), body=b"1234")}, zipfile.ZIP_BZIP2)),
    "pickle that runs code": (".pt", saved({"w": Evil()})),
    "bare pickle that runs code": (".pt", b"cos\nsystem\n(S'touch ran'\ntR."),
    "pickle in the archive": (".pt", edited(lambda _: b"cos\nsystem\n(S'touch ran'\ntR.")),
    "a whole model": (".pt", saved(MODEL)),
    "a list": (".pt", saved([torch.zeros(2)])),
    "a number": (".pt", saved({"w": 3})),
    "huge tensor": (".pt", edited(sized)),
    "huge tensor of stride 0": (".pt", edited(lambda raw: sized(raw, b"K\x00\x85"))),
    "huge storage": (".pt", edited(lambda raw: raw.replace(b"K\x06tq\x07Q", b"J\x00\x00\x00\x70tq\x07Q"))),
    "bytes of any number": (".pt", edited(lambda _: b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.")),
    "an encoding that doubles": (
        ".pt",
        edited(lambda _: b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0hex\x86R."),
    ),
    "tuples within tuples": (".pt", edited(lambda _: b"\x80\x02}" + nested_tuples(60) + b"K\x02s.")),
    "an alignment of zero": (".pt", aligned(b"0")),
    "two directories": (".pt", saved({"a": torch.zeros(2)}) + saved({"a": torch.zeros(2)})),
    "two pickles": (".pt", zipped({"a/data.pkl": b"\x80\x02}.", "a/DATA.PKL": b"\x80\x02}.", "a/version": b"3"})),
    "many views": (".pt", saved({f"w{i}": VIEWED for i in range(200)})),
    "sparse": (".pt", saved({"w": torch.eye(2).to_sparse()})),
    "complex": (".pt", saved({"w": torch.zeros(2, dtype=torch.complex64)})),
    "NaN": (".pt", saved(NAN)),
    "infinity": (".pth", saved({"w": torch.tensor([-torch.inf], dtype=torch.float16)})),
    "unknown ending": (".bin", b"1234"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ending, content = HOSTILE[name]
    path = tmp_path / f"hostile{ending}"
    path.write_bytes(content)
    with pytest.raises(FileError) as fault:
        read_state(path)
    assert str(path) in str(fault.value)
    assert fault.value.remedy
    assert "\n" not in str(fault.value)
    assert not (tmp_path / "ran").exists()


def test_weights_of_a_gpu_are_read_without_one(tmp_path: Path) -> None:
    """A checkpoint that was saved on a GPU names that device for every storage."""
    out, tensors = io.BytesIO(), {"weight": torch.arange(6.0).view(2, 3)}
    torch.save(tensors, out)
    with zipfile.ZipFile(out) as archive, zipfile.ZipFile(tmp_path / "w.pt", "w") as gpu:
        for info in archive.infolist():
            content = archive.read(info)
            if info.filename.endswith("data.pkl"):
                assert b"X\x03\x00\x00\x00cpu" in content
                content = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            gpu.writestr(info, content)
    read = read_state(tmp_path / "w.pt").tensors["weight"]
    assert read.device.type == "cpu"
    assert torch.equal(read, tensors["weight"])


def test_absent_and_irregular(tmp_path: Path) -> None:
    (tmp_path / "folder.pt").mkdir()
    os.mkfifo(tmp_path / "pipe.npz")
    for name, said in (("no.pt", "no such file"), ("folder.pt", "is a folder"), ("pipe.npz", "no regular file")):
        with pytest.raises(FileError, match=said):
            read_state(tmp_path / name)
    for name in ("x" * 5000 + ".pt", "nul\0.pt"):
        with pytest.raises(FileError):
            read_state(tmp_path / name)


# --- fuzz: cut anywhere, flip any byte


@pytest.mark.parametrize("ending", ENDINGS[:3])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated(ending: str, share: float, tmp_path: Path) -> None:
    path = written(tmp_path, ending)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(FileError):
        read_state(path)


@pytest.mark.parametrize("ending", ENDINGS[:3])
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes(ending: str, flips: list[tuple[float, int]], tmp_path: Path) -> None:
    path = written(tmp_path, ending)
    content = bytearray(path.read_bytes())
    for share, mask in flips:
        content[int(share * len(content))] ^= mask
    path.write_bytes(content)
    try:
        read = read_state(path)
    except FileError:
        return
    assert all(value.numel() < 1000 for value in read.tensors.values())
