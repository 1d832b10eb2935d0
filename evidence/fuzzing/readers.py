"""Every reader of files that somebody else may have written, each with valid files to begin from."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import torch
from safetensors.torch import save as packed

from evidence.fuzzing.mutations import (
    TEXTS,
    Mutation,
    of_bytes,
    of_facts,
    of_gzip,
    of_header,
    of_json,
    of_png,
    of_words,
    of_zip,
)
from evidence.fuzzing.samples import (
    APP,
    APP_WORDS,
    EXPRESSIONS,
    KEYS,
    SPEC,
    WORDS,
    few_cells,
    npz,
    picture,
    priors,
    run_folder,
    saved,
    tar,
)
from leakgauge import models
from leakgauge.types import Domain

DOMAIN = Domain("image", (1, 4, 4), 3)


@dataclass(frozen=True)
class Reader:
    """A reader, valid ``files`` by name, and how they are changed. ``beside`` stands unchanged in the same folder."""

    name: str
    files: Mapping[str, bytes]
    read: Callable[[Path], object]
    mutations: tuple[Mutation, ...] = (of_bytes,)
    beside: Mapping[str, bytes] = field(default_factory=dict)

    def changed(self, rng: Random) -> tuple[str, bytes]:
        """One of the files by its name, changed; one in a hundred is nothing but noise."""
        name = rng.choice(list(self.files))
        if rng.random() < 0.01:
            return name, rng.randbytes(rng.randrange(200))
        content = self.files[name]
        wanted = [m for m in self.mutations if m is not of_json or name.endswith(".json")]
        return name, rng.choice(wanted)(content, rng)

    def written(self, folder: Path, name: str, content: bytes) -> Path:
        """The changed file among those beside it, all of them there again."""
        for other, whole in self.beside.items():
            path = f"{folder}/{other}"
            if other != name and _written.get(path) != _stamp(path):
                _write(path, whole)
                _written[path] = _stamp(path)
        path = f"{folder}/{name}"
        _written.pop(path, None)
        _write(path, content)
        return Path(path)


_written: dict[str, tuple[int, int, int] | None] = {}
"""File → how it looked when it was written: what a reader changed is written again."""


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _write(path: str, content: bytes) -> None:
    try:
        stream = open(path, "wb")  # noqa: SIM115 - closed below, for half of the time
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        stream = open(path, "wb")  # noqa: SIM115
    with stream:
        stream.write(content)


def _spec(path: Path) -> None:
    """The form of a spec, and every expression in it."""
    from leakgauge.study.draft import Draft
    from leakgauge.study.spec import SpecError, examined, table

    spec, problems = examined(table(path), str(path))
    if spec is not None:
        Draft.of(spec, path).own_code  # noqa: B018 - it is computed here
    if problems:
        raise SpecError(problems)


def _checked_spec(path: Path) -> None:
    """As ``check`` reads one, with the sense of every value."""
    from leakgauge.study.draft import sound

    sound(path).problems()


def _expression(path: Path) -> None:
    """As ``check`` reads one: nothing of the user's is imported."""
    from leakgauge.expr import read

    text = path.read_bytes().decode("utf-8", errors="replace")
    for kind in ("defense", "attack"):
        reading = read(text, kind, own_code=False)
        for fault in reading.faults:
            str(fault)
        repr(reading.value)


def _state(path: Path) -> None:
    from leakgauge.storage.states import read_state

    read_state(path).misfits(_model())


def _captured(path: Path) -> None:
    from leakgauge.inspect.captures import folder_of

    folder_of(path.parent, _model())


@cache
def _model() -> torch.nn.Module:
    return models.build("mlp(width=4, depth=1)", DOMAIN)


def _records(path: Path) -> None:
    from leakgauge.data import load

    load(path).domain  # noqa: B018 - it is computed here


def _pictures(path: Path) -> None:
    from leakgauge.data.folder import read_folder

    read_folder(path.parent.parent)


def _idx(path: Path) -> None:
    from leakgauge.data.idx import read_idx

    read_idx(path)


def _cifar(path: Path) -> None:
    from leakgauge.data.cifar import read_cifar

    read_cifar([path])


def _archive(path: Path) -> None:
    from leakgauge.data.archive import collect
    from leakgauge.data.catalogue import File

    ready = path.parent / "ready"
    ready.mkdir(exist_ok=True)
    collect(path, [File("a-idx3", 20, "0" * 64)], ready)


def _prior(path: Path) -> None:
    """A learned prior, its network built and its density computed."""
    from leakgauge.priors import Learned, Patches
    from leakgauge.priors.generators import classes_of, known_records, read_decoder
    from leakgauge.priors.patches import read_mixture

    for keep in (read_decoder, classes_of, known_records, read_mixture):
        keep.cache_clear()
    records = torch.zeros(1, 1, 4, 4)
    if path.stem == "patches":
        patches = Patches(str(path))
        patches.trained_on(records)
        _, mixture = read_mixture(str(path), patches.sha256)
        mixture.log_density(torch.zeros(1, mixture.means.shape[1]))
    else:
        learned = Learned(str(path))
        learned.trained_on(records)
        learned.decoder(torch.zeros(()), (1, 4, 4))
        learned.network(torch.zeros(1, learned.codes + learned.classes))


def _app(path: Path) -> None:
    """The privacy settings of an app or a job: read, not run."""
    from leakgauge.claims import examine_folder

    examine_folder(path.parent).as_json()


def _result(path: Path) -> None:
    from leakgauge.audit.judge.model import Result

    result = Result.load(path.parent)
    result.redacted().text()
    result.exit_code("recognisable")
    repr(result)


def _reports(path: Path) -> None:
    """Markdown and JUnit, or the page, which takes three times as long as both."""
    from leakgauge.report import report

    run = path.parent.parent if path.parent.name == "cells" else path.parent
    page = zlib.crc32(path.read_bytes()) % 4 == 0
    report(run, formats=("html",) if page else ("md", "junit"))


def _resumed(path: Path) -> None:
    """What a resumed audit reads of a run folder before it trusts a cell."""
    from leakgauge.audit.store import Store

    run = path.parent.parent if path.parent.name == "cells" else path.parent
    store = Store(run)
    store.sweep()
    for cell in run.glob("cells/*.json"):
        if store.done(cell.stem):
            store.result(cell.stem).get("place")
            if cell.with_suffix(".safetensors").exists():
                store.tensors(cell.stem)
    store.timings()
    Store(run, redact=True).keep(torch.zeros(1), torch.zeros(1))


def _signature(path: Path) -> None:
    from leakgauge.storage.signing import public_key, verify

    verify(path.parent, public_key(path.parent / "key.pub"))


def _parts(files: Mapping[str, bytes], *endings: str) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(endings)}


def _readers() -> dict[str, Callable[[], Reader]]:
    state = {name: value.clone() for name, value in _model().state_dict().items()}
    arrays = {name: value.numpy() for name, value in state.items()}
    metadata = {"kind": "gradient", "round": "3", "client": '"é"', "sign": "-1"}
    images = np.random.default_rng(0).random((12, 1, 4, 4), np.float32)
    labels = np.arange(12) % 3
    idx = bytes((0, 0, 8, 3)) + b"".join(n.to_bytes(4, "big") for n in (2, 3, 3)) + bytes(range(18))
    table = b"age,job,label\n" + b"".join(b"%d,%s,%d\n" % (i, (b"a", b"b")[i % 2], i % 3) for i in range(12))
    rows = npz(x=images.reshape(12, 16), y=labels, columns=np.array([f"c{i}" for i in range(16)]))
    pictures = [(form, "RGB") for form in ("PNG", "JPEG", "BMP", "TIFF", "PPM")]
    pictures += [("PNG", "L"), ("PNG", "P"), ("GIF", "L")]
    formats = {"-".join(how): how for how in pictures}
    archived = {"a.zip": npz(**{"a-idx3": labels}), "a.tar.gz": tar(idx)}
    return {
        "spec": lambda: Reader("spec", {"spec.toml": SPEC}, _spec, (of_bytes, of_words((*KEYS, *WORDS)))),
        "checked spec": lambda: Reader(
            "checked spec", {"spec.toml": SPEC}, _checked_spec, (of_bytes, of_words((*KEYS, *WORDS)))
        ),
        "expression": lambda: Reader(
            "expression",
            {f"{i}.txt": text for i, text in enumerate(EXPRESSIONS)},
            _expression,
            (of_bytes, of_words(WORDS)),
        ),
        "safetensors": lambda: Reader(
            "safetensors", {"w.safetensors": packed(state, metadata)}, _state, (of_bytes, of_header)
        ),
        "weights npz": lambda: Reader(
            "weights npz",
            {"w.npz": npz(**arrays), "p.npz": npz(np.savez_compressed, **arrays)},
            _state,
            (of_bytes, of_zip),
        ),
        "pt": lambda: Reader(
            "pt", {"w.pt": saved(state), "s.pth": saved({"state_dict": state})}, _state, (of_bytes, of_zip)
        ),
        "captured updates": lambda: Reader(
            "captured updates",
            {"r1-client2.safetensors": packed(state, metadata), "r1.safetensors": packed(state, {"kind": "state"})},
            _captured,
            (of_bytes, of_header, of_facts),
            {"r1-client2.safetensors": packed(state, metadata), "r1.safetensors": packed(state, {"kind": "state"})},
        ),
        "records npz": lambda: Reader(
            "records npz",
            {"d.npz": npz(inputs=images, labels=labels, classes=3), "t.npz": rows},
            _records,
            (of_bytes, of_zip, of_zip),
        ),
        "csv": lambda: Reader(
            "csv", {"d.csv": table}, _records, (of_bytes, of_words((b"a", b"?", b"1e9", b"label", *TEXTS)))
        ),
        "idx": lambda: Reader("idx", {"a-idx3": idx, "b-idx3.gz": gzip.compress(idx)}, _idx, (of_bytes, of_gzip)),
        "cifar": lambda: Reader("cifar", {"a.bin": bytes(range(256)) * 12 + bytes(1)}, _cifar),
        "pictures": lambda: Reader(
            "pictures", {f"data/a/{name}": picture(*how) for name, how in formats.items()}, _alone, (of_bytes, of_png)
        ),
        "archive": lambda: Reader("archive", archived, _archive, (of_bytes, of_zip_or_gzip)),
        "result": lambda: Reader(
            "result", {"result.json": run_folder()["result.json"]}, _result, (of_bytes, of_json, of_json)
        ),
        "report": lambda: Reader(
            "report", _parts(few_cells(), ".json", ".safetensors"), _reports, (of_bytes, of_json), few_cells()
        ),
        "resumed run": lambda: Reader(
            "resumed run",
            _parts(few_cells(), ".json", ".safetensors", "log.jsonl"),
            _resumed,
            (of_bytes, of_json),
            few_cells(),
        ),
        "learned prior": lambda: Reader("learned prior", priors(), _prior, (of_bytes, of_header, of_facts, of_facts)),
        "app": lambda: Reader("app", APP, _app, (of_bytes, of_words((*WORDS, *APP_WORDS)), of_json), APP),
        "signature": lambda: Reader(
            "signature",
            _parts(run_folder(), "signature.json", "key.pub", "report.md"),
            _signature,
            (of_bytes, of_json),
            _parts(run_folder(), "signature.json", "key.pub", "report.md", "result.json"),
        ),
    }


def _alone(path: Path) -> None:
    """Only the changed picture: others of an earlier turn would have another size."""
    for other in path.parent.iterdir():
        if other != path:
            other.unlink()
    _pictures(path)


def of_zip_or_gzip(content: bytes, rng: Random) -> bytes:
    return of_zip(content, rng) if content[:2] == b"PK" else of_gzip(content, rng)


@cache
def reader(name: str) -> Reader:
    """A reader by its name; its files are made once."""
    return READERS[name]()


READERS: dict[str, Callable[[], Reader]] = _readers()
