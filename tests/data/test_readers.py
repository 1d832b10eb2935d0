"""Readers give back what was written, and one DataError for anything else."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from leakgauge.data import read_cifar, read_folder, read_idx, read_idx_pair, read_npz, write_idx
from leakgauge.errors import DataError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2], np.uint8)


def cifar_bytes(n: int = 3) -> bytes:
    rows = RNG.integers(0, 256, (n, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(n) % 10
    return rows.tobytes()


# --- round trips


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_idx_round_trip(tmp_path: Path, name: str) -> None:
    write_idx(tmp_path / name, IMAGES)
    np.testing.assert_array_equal(read_idx(tmp_path / name), IMAGES)


def test_idx_pair_adds_the_channel_axis(tmp_path: Path) -> None:
    write_idx(tmp_path / "x", IMAGES)
    write_idx(tmp_path / "y", LABELS)
    arrays = read_idx_pair(tmp_path / "x", tmp_path / "y")
    assert arrays.inputs.shape == (6, 1, 5, 4)
    assert arrays.labels.tolist() == LABELS.tolist()


def test_cifar_reads_labels_and_planes(tmp_path: Path) -> None:
    content = cifar_bytes(4)
    (tmp_path / "a.bin").write_bytes(content[: 3 * 3073])
    (tmp_path / "b.bin").write_bytes(content[3 * 3073 :])
    arrays = read_cifar([tmp_path / "a.bin", tmp_path / "b.bin"])
    assert arrays.labels.tolist() == [0, 1, 2, 3]
    assert arrays.inputs.shape == (4, 3, 32, 32)
    assert arrays.inputs[3, 2, 31, 31] == content[-1]  # blue comes last
    assert arrays.inputs[0, 0, 0, 1] == content[2]


@pytest.mark.parametrize("keys", [("inputs", "labels"), ("x", "y"), ("x_train", "y_train")])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_round_trip(tmp_path: Path, keys: tuple[str, str], save: Callable[..., None]) -> None:
    save(tmp_path / "a.npz", **{keys[0]: IMAGES, keys[1]: LABELS.astype(np.int32)})
    found = read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.train.inputs[:, 0], IMAGES)
    assert found.train.labels.dtype == np.int64
    assert found.test is None
    assert found.classes is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_npz_floats_become_float32(tmp_path: Path, dtype: str) -> None:
    images = (IMAGES / 255).astype(dtype)
    np.savez(tmp_path / "a.npz", inputs=images, labels=LABELS)
    found = read_npz(tmp_path / "a.npz").train.inputs
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, 0], images.astype(np.float32))


def test_npz_axes(tmp_path: Path) -> None:
    last = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    np.savez(tmp_path / "last.npz", inputs=last, labels=LABELS)
    np.savez(tmp_path / "fortran.npz", inputs=np.asfortranarray(last), labels=LABELS)
    first = np.moveaxis(last, 3, 1)
    np.savez(tmp_path / "first.npz", inputs=np.ascontiguousarray(first), labels=LABELS)
    for name in ("last", "fortran", "first"):
        np.testing.assert_array_equal(read_npz(tmp_path / f"{name}.npz").train.inputs, first)


def test_npz_own_test_records_and_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS, x_test=IMAGES[:2], y_test=LABELS[:2], classes=7)
    found = read_npz(tmp_path / "a.npz")
    assert found.test is not None
    assert len(found.test) == 2
    assert found.classes == 7


def test_folder_round_trip(tmp_path: Path) -> None:
    for i, label in enumerate(LABELS):
        (tmp_path / "cdb"[label]).mkdir(exist_ok=True)
        Image.fromarray(IMAGES[i]).save(tmp_path / "cdb"[label] / f"{i}.png")
    (tmp_path / "c" / ".hidden").write_text("not an image")
    found = read_folder(tmp_path)
    assert found.class_names == ("b", "c", "d")
    assert found.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(found.train.inputs[:, 0], IMAGES[[2, 5, 0, 3, 1, 4]])


def test_folder_colour_palette_and_own_split(tmp_path: Path) -> None:
    colours = RNG.integers(0, 256, (5, 4, 3), dtype=np.uint8)
    for split in ("train", "test"):
        (tmp_path / split / "only").mkdir(parents=True)
        Image.fromarray(colours).save(tmp_path / split / "only" / "a.png")
    Image.fromarray(colours).quantize(256).save(tmp_path / "train" / "only" / "b.png")
    found = read_folder(tmp_path)
    assert found.test is not None
    assert found.train.inputs.shape == (2, 3, 5, 4)
    np.testing.assert_array_equal(found.test.inputs[0], np.moveaxis(colours, 2, 0))


# --- cut short, at every place that can matter


def cuts(size: int) -> list[int]:
    return sorted({*range(min(size, 40)), *range(max(size - 24, 0), size), *range(0, size, max(size // 40, 1))})


@pytest.mark.parametrize("kind", ["idx", "idx.gz", "npz", "packed npz", "cifar"])
def test_truncation_is_one_data_error(tmp_path: Path, kind: str) -> None:
    read: Callable[[Path], object]
    path = tmp_path / "a"
    if kind.startswith("idx"):
        write_idx(tmp_path / kind, IMAGES)
        content, read = (tmp_path / kind).read_bytes(), read_idx
    elif kind == "cifar":
        content, read = cifar_bytes(), lambda p: read_cifar([p])
    else:
        out = io.BytesIO()
        (np.savez_compressed if kind == "packed npz" else np.savez)(out, inputs=IMAGES, labels=LABELS)
        content, read = out.getvalue(), read_npz
    path.write_bytes(content)
    read(path)
    for cut in cuts(len(content)):
        if kind == "cifar" and cut % 3073 == 0 and cut:
            continue  # whole records: without a header nothing is wrong
        path.write_bytes(content[:cut])
        with pytest.raises(DataError) as caught:
            read(path)
        assert path.name in str(caught.value), cut
        assert caught.value.remedy
        assert "\n" not in str(caught.value)


def test_a_truncated_image_is_refused_while_pixels_are_missing(tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    out = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(out, "png")
    content = out.getvalue()
    refused = 0
    for cut in range(len(content)):
        (tmp_path / "only" / "a.png").write_bytes(content[:cut])
        try:
            found = read_folder(tmp_path).train.inputs[0, 0]
        except DataError:
            refused += 1
        else:  # only checksums and the end mark are gone
            np.testing.assert_array_equal(found, IMAGES[0])
    assert refused >= len(content) - 24


@pytest.mark.parametrize("kind", ["idx.gz", "npz"])
@given(data=st.data())
def test_flipped_bytes_never_escape_as_other_errors(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    if kind == "idx.gz":
        write_idx(folder / "a.gz", IMAGES)
        content, read = bytearray((folder / "a.gz").read_bytes()), read_idx
    else:
        out = io.BytesIO()
        np.savez_compressed(out, inputs=IMAGES, labels=LABELS)
        content, read = bytearray(out.getvalue()), read_npz  # type: ignore[assignment]
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "b").write_bytes(content)
    with contextlib.suppress(DataError):  # anything else fails the test
        read(folder / "b")


# --- hostile headers


def peak(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def idx_header(*shape: int) -> bytes:
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(0xFFFFFFFF,) * 4, (60_000, 28, 28), (1 << 20,)])
def test_idx_huge_shape_allocates_nothing(tmp_path: Path, packed: bool, shape: tuple[int, ...]) -> None:
    content = idx_header(*shape) + bytes(100)
    (tmp_path / "a").write_bytes(gzip.compress(content, mtime=0) if packed else content)
    assert peak(lambda: read_idx(tmp_path / "a")) < 4_000_000
    with pytest.raises(DataError, match="exceeds the size of the file"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize("packed", [False, True])
def test_idx_large_shape_that_might_be_true_is_read_bit_by_bit(tmp_path: Path, packed: bool) -> None:
    content = idx_header(60_000_000) + RNG.bytes(100_000)  # packed at best, 100 kB could hold 100 MB
    (tmp_path / "a").write_bytes(gzip.compress(content, mtime=0) if packed else content)
    assert peak(lambda: read_idx(tmp_path / "a")) < 4_000_000
    with pytest.raises(DataError, match="ends after 100000 of 60000000 bytes"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "does not start like an IDX file"),
        (bytes((0, 0, 0x0D, 1, 0, 0, 0, 1)) + bytes(4), "type 0x0d"),
        (bytes((0, 0, 8, 0)), "rank 0"),
        (bytes((0, 0, 8, 9)) + bytes(60), "rank 9"),
        (idx_header(2, 2) + bytes(5), "has extra data after its 4 bytes"),
        (idx_header(2, 2) + bytes(3), "ends after 3 of 4 bytes"),
        (gzip.compress(idx_header(2, 2) + bytes(9), mtime=0), "has extra data after"),
        (idx_header(0, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), "cannot be read"),
    ],
)
def test_idx_faults_are_named(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=what):
        read_idx(tmp_path / "a")


def test_idx_pair_counts_must_agree(tmp_path: Path) -> None:
    write_idx(tmp_path / "x", IMAGES)
    write_idx(tmp_path / "y", LABELS[:5])
    with pytest.raises(DataError, match="6 images but 5 labels"):
        read_idx_pair(tmp_path / "x", tmp_path / "y")
    write_idx(tmp_path / "y", IMAGES)
    with pytest.raises(DataError, match="labels are uint8 of shape"):
        read_idx_pair(tmp_path / "x", tmp_path / "y")


def test_cifar_faults(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(DataError, match="record 0 has class 10"):
        read_cifar([tmp_path / "a.bin"])
    with pytest.raises(DataError, match="no such file"):
        read_cifar([tmp_path / "none.bin"])


def npy(shape: str, body: bytes, descr: str = "'|u1'") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + body


def write_npz(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)


@pytest.mark.parametrize("shape", ["(100000000, 28, 28)", "(-1, -784)", "(6, 5, 5)", "(1" + ", 2" * 40 + ")"])
def test_npz_shape_must_fit_its_data(tmp_path: Path, shape: str) -> None:
    write_npz(tmp_path / "a.npz", inputs=npy(shape, bytes(784)), labels=npy("(6,)", bytes(6)))
    with pytest.raises(DataError, match="declares the shape"):
        read_npz(tmp_path / "a.npz")
    assert peak(lambda: read_npz(tmp_path / "a.npz")) < 4_000_000


def test_npz_huge_entry_is_refused_before_reading(tmp_path: Path) -> None:
    """The sizes in a zip directory are patched to agree with a huge shape."""
    size = 0x7FFFFFF0
    content = npy(f"({size - 128}, )", bytes(100))
    write_npz(tmp_path / "a.npz", inputs=content, labels=npy("(6,)", bytes(6)))
    raw = (tmp_path / "a.npz").read_bytes()
    assert raw.count(struct.pack("<I", len(content))) == 2  # local header and directory
    (tmp_path / "a.npz").write_bytes(raw.replace(struct.pack("<I", len(content)), struct.pack("<I", size)))
    with pytest.raises(DataError, match="exceeds the size of the file"):
        read_npz(tmp_path / "a.npz")
    assert peak(lambda: read_npz(tmp_path / "a.npz")) < 4_000_000


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"inputs": np.full((2, 4, 4), np.nan), "labels": [0, 1]}, "NaN"),
        ({"inputs": np.full((2, 4, 4), 1.5), "labels": [0, 1]}, r"span 1.5\.\.1.5"),
        ({"inputs": np.full((2, 4, 4), -0.1), "labels": [0, 1]}, r"span -0.1"),
        ({"inputs": np.zeros((2, 4, 4), np.int32), "labels": [0, 1]}, "inputs are int32"),
        ({"inputs": np.zeros(2), "labels": [0, 1]}, r"shape \(2,\)"),
        ({"inputs": np.zeros((2, 5, 4, 4)), "labels": [0, 1]}, r"shape \(2, 5, 4, 4\)"),
        ({"inputs": np.zeros((2, 0, 4)), "labels": [0, 1]}, "shape"),
        ({"inputs": np.zeros((0, 4, 4)), "labels": np.zeros(0, int)}, "no records"),
        ({"inputs": np.zeros((2, 4, 4)), "labels": [0, 1, 1]}, "2 images but 3 labels"),
        ({"inputs": np.zeros((2, 4, 4)), "labels": [0.0, 1.0]}, "labels are float64"),
        ({"inputs": np.zeros((2, 4, 4)), "labels": [0, -1]}, r"span -1\.\.0"),
        ({"inputs": np.zeros((2, 4, 4)), "labels": [0, 10**9]}, "labels span"),
        ({"inputs": np.zeros((2, 4, 4)), "labels": [0, 1], "classes": 0}, "classes"),
        ({"pixels": np.zeros((2, 4, 4)), "labels": [0, 1]}, "has the keys labels, pixels"),
        ({"inputs": np.array([{"a": 1}, None]), "labels": [0, 1]}, "holds object values"),
        ({"inputs": np.zeros((2, 4, 4)), "labels": np.array(["a", "b"])}, "holds <U1 values"),
    ],
)
def test_npz_faults_are_named(tmp_path: Path, members: dict[str, np.ndarray], what: str) -> None:
    np.savez(tmp_path / "a.npz", **members)
    with pytest.raises(DataError, match=what):
        read_npz(tmp_path / "a.npz")


def test_npz_object_array_is_never_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "boom",))

    bomb = np.empty(1, object)
    bomb[0] = Bomb()
    np.savez(tmp_path / "a.npz", inputs=bomb, labels=[0])
    with pytest.raises(DataError, match="objects are never read"):
        read_npz(tmp_path / "a.npz")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("letter", [0x110000, 0xFFFFFFFF, 0xD800])
def test_npz_columns_of_letters_that_do_not_exist(tmp_path: Path, letter: int) -> None:
    columns = np.array([letter, 66], np.uint32).view("U1")
    np.savez(tmp_path / "a.npz", inputs=np.zeros((2, 2)), labels=[0, 1], columns=columns)
    with pytest.raises(DataError, match="letters that do not exist"):
        read_npz(tmp_path / "a.npz")


def test_npz_that_is_no_zip(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"a\.npz: cannot be read .*; save it again"):
        read_npz(tmp_path / "a.npz")


def folder_with(path: Path, **files: bytes) -> Path:
    (path / "one").mkdir(parents=True)
    for name, content in files.items():
        (path / "one" / f"{name}.png").write_bytes(content)
    return path


def image(*shape: int, mode: str | None = None) -> bytes:
    out = io.BytesIO()
    picture = Image.fromarray(np.zeros(shape, np.uint8))
    (picture.convert(mode) if mode else picture).save(out, "png")
    return out.getvalue()


def tiff_with_a_fraction_for_an_offset() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((5, 4), 77, np.uint8)).save(out, "tiff")
    whole, fraction = (struct.pack("<HHI", 0x111, kind, 1) for kind in (4, 12))
    assert whole in out.getvalue()
    return out.getvalue().replace(whole, fraction)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"a": tiff_with_a_fraction_for_an_offset()}, r"a\.png: cannot be read"),
        ({"a": image(5, 4), "b": image(4, 5)}, r"b\.png: has shape \(1, 4, 5\), but .*a\.png has \(1, 5, 4\)"),
        ({"a": image(5, 4), "b": image(5, 4, 3)}, r"b\.png: has shape \(3, 5, 4\)"),
        ({"a": image(5, 4), "b": b"no image"}, r"b\.png: cannot be read"),
        ({"a": image(5, 4, 4)}, "mode RGBA"),
        ({"a": image(5, 4, mode="I;16")}, "mode I;16"),
        ({}, "contains no images"),
    ],
)
def test_folder_faults_are_named(tmp_path: Path, files: dict[str, bytes], what: str) -> None:
    with pytest.raises(DataError, match=what):
        read_folder(folder_with(tmp_path / "set", **files))


def test_folder_refuses_a_picture_of_a_billion_pixels(tmp_path: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    for side in (10_000, 40_000):  # Pillow warns at the first, refuses the second
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
        content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
        path = folder_with(tmp_path / str(side), a=content)
        assert peak(lambda path=path: read_folder(path)) < 4_000_000  # type: ignore[misc]


def test_a_picture_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands an EPS file, whatever its name, to Ghostscript, which runs programs."""
    (tmp_path / "bin").mkdir()
    interpreter = tmp_path / "bin" / "gs"
    interpreter.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    interpreter.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n%%EOF\n"
    with pytest.raises(DataError, match="cannot be read"):
        read_folder(folder_with(tmp_path / "set", a=program))
    assert not (tmp_path / "ran").exists()


def test_folder_without_classes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sub-folders"):
        read_folder(tmp_path)
    for name in ("train/a", "test/b"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DataError, match="different classes"):
        read_folder(tmp_path)
