"""Extract a few known files from an untrusted folder or archive."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO

from leakgauge.data.catalogue import File
from leakgauge.errors import DataError
from leakgauge.storage.streams import CHUNK, reading


def collect(source: Path, wanted: Sequence[File], ready: Path) -> None:
    """Copy the wanted files from ``source`` into ``ready``, each under its own name, each checked.

    ``source`` is a folder, a tar (compressed or not), a zip or a Debian package. A file is found by its
    name, plain or with ``.gz``, and accepted if its unpacked content has the pinned SHA-256. Names inside
    an archive determine what is read, never where it is written, and nothing longer than expected is
    written. Of several files with the same name, the one with the right content is used. A single raw file
    stands for the folder that contains it.
    """
    missing = {file.name: file for file in wanted}
    wrong: dict[str, str] = {}
    if source.is_file() and _plain(source.name) in missing:
        source = source.parent
    with reading(source, "it may be truncated; download it again"):
        for name, stream in _members(source):
            plain = _plain(name)
            if plain not in missing:
                continue
            digest = _copy(stream, ready / plain, missing[plain].size, packed=name.endswith(".gz"))
            if digest == missing[plain].sha256:
                del missing[plain]
            else:
                (ready / plain).unlink()
                wrong[plain] = digest
            if not missing:
                return
    _complain(source, missing, wrong)


def _plain(name: str) -> str:
    """The name of a content file in the cache; MNIST's files travel as ``-idx3`` and as ``.idx3``."""
    return PurePosixPath(name).name.removesuffix(".gz").replace(".idx", "-idx")


def _complain(source: Path, missing: dict[str, File], wrong: dict[str, str]) -> None:
    for name, file in missing.items():
        if name in wrong:
            raise DataError(
                f"{name} has SHA-256 {wrong[name]}, not {file.sha256}",
                where=str(source),
                remedy="it is damaged or another version; download it again",
            )
    raise DataError(
        f"does not contain {', '.join(missing)}",
        where=str(source),
        remedy="give the folder or archive with these files",
    )


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _copy(stream: IO[bytes], target: Path, size: int, *, packed: bool) -> str:
    """Copy at most ``size`` bytes; the digest of all of them, or a remark that there were more."""
    digest, left = hashlib.sha256(), size
    with target.open("wb") as out, gzip.GzipFile(fileobj=stream) if packed else nullcontext(stream) as content:
        while chunk := content.read(CHUNK):
            left -= len(chunk)
            if left < 0:
                return f"of more than the expected {size} bytes"
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _members(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of a folder or archive by name; names that lead out of it are passed over."""
    if source.is_dir():
        yield from _folder(source)
    elif source.suffix == ".deb":
        with _unpacked(source) as tar:
            yield from _tar(tar)
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                if not info.is_dir() and _inside(info.filename):
                    with archive.open(info) as stream:
                        yield info.filename, stream
    else:
        yield from _tar(source)


def _folder(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                yield path.name, stream


def _tar(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(source) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() and _inside(member.name) else None
            if stream is not None:
                with stream:
                    yield member.name, stream


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


@contextmanager
def _unpacked(package: Path) -> Iterator[Path]:
    """The tar inside a Debian package; dpkg-deb knows every packing that Debian and Ubuntu use."""
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "data.tar"
        try:
            with tar.open("wb") as out:
                done = subprocess.run(
                    ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=out, stderr=errors, check=False
                )
        except FileNotFoundError:
            raise DataError(
                "dpkg-deb is needed to open it and is not installed",
                where=str(package),
                remedy="install dpkg, or give the unpacked folder",
            ) from None
        if done.returncode:
            errors.seek(0)
            reason = errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise DataError(
                f"dpkg-deb cannot open it ({reason[0]})",
                where=str(package),
                remedy="it may be truncated; download it again",
            )
        yield tar
