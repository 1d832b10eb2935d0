"""Malformed specs, weights and update files, and what the program says of each: more than 200, made here."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as packed
from typer.testing import CliRunner

from leakgauge import models
from leakgauge.cli.app import app
from leakgauge.storage import toml
from leakgauge.types import Domain

SECONDS = 60
"""A command that takes longer than this hangs."""
MARK = "ran"
"""The file that hostile code would leave behind."""


@dataclass(frozen=True)
class Case:
    """A command on files, some of which are not what they should be."""

    name: str
    files: Mapping[str, bytes]
    command: tuple[str, ...]


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {MARK}",)


def _saved(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def _npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return out.getvalue()


def _npy(shape: str, descr: str = "<f4", body: bytes = b"1234") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def _safetensors(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def _entry(shape: list[int], end: int, dtype: str = "F32") -> bytes:
    return json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()


MODEL = models.build("logistic", Domain("image", (1, 12, 12), 4))
STATE = {name: value.clone() for name, value in MODEL.state_dict().items()}
WEIGHT, BIAS = STATE
GOOD = {
    "w.safetensors": packed(STATE),
    "w.pt": _saved(STATE),
    "w.npz": _npz(**{name: value.numpy() for name, value in STATE.items()}),
}
IMAGES = np.random.default_rng(0).random((60, 1, 12, 12), np.float32)
DATA = _npz(inputs=IMAGES, labels=np.arange(60) % 4)
SPEC: dict[str, Any] = {
    "task": {"model": "logistic", "data": "d.npz", "records": 8, "weights": "w.safetensors", "recipe": {"batch": 1}},
    "defenses": {"none": "identity()"},
    "adversaries": {"a": "analytic()"},
    "leave_out": ["adaptive"],
}


def _states() -> Iterator[tuple[str, str, bytes]]:
    """Name, ending, content of weights or updates that nobody should accept."""
    for ending, whole in ((name[1:], content) for name, content in GOOD.items()):
        for share in range(12):
            yield f"cut at {share}/12", ending, whole[: share * len(whole) // 12]
    odd = {
        "no header": b"hello, this is a text of some length",
        "a header longer than the file": struct.pack("<Q", 1 << 62) + b"{}",
        "no JSON": _safetensors(b"{" * 50),
        "deeply nested": _safetensors(b"[" * 100_000),
        "a huge shape": _safetensors(_entry([1 << 40], 1 << 42)),
        "an overflowing shape": _safetensors(_entry([1 << 62, 1 << 62], 8), b"12345678"),
        "a shape that does not fit": _safetensors(_entry([3], 4), b"1234"),
        "an unknown type": _safetensors(_entry([1], 4, "F99"), b"1234"),
        "metadata that is no UTF-8": _safetensors(b'{"__metadata__":{"kind":"\xff\xfe"}}'),
        "no tensor": _safetensors(b"{}"),
        "another model's tensors": packed({"w": torch.zeros(3)}),
        "NaN": packed({**STATE, WEIGHT: torch.full_like(STATE[WEIGHT], torch.nan)}),
        "infinity": packed({**STATE, BIAS: torch.full_like(STATE[BIAS], -torch.inf)}),
        "whole numbers": packed({name: value.long() for name, value in STATE.items()}),
        "another shape": packed({**STATE, BIAS: torch.zeros(7)}),
    }
    yield from ((name, ".safetensors", content) for name, content in odd.items())
    pickles = {
        "code": _saved({"w": _Evil()}),
        "bare code": f"cos\nsystem\n(S'touch {MARK}'\ntR.".encode(),
        "a whole model": _saved(MODEL),
        "a list": _saved([torch.zeros(2)]),
        "a number": _saved({"w": 3}),
        "a sparse tensor": _saved({"w": torch.eye(2).to_sparse()}),
        "complex numbers": _saved({"w": torch.zeros(2, dtype=torch.complex64)}),
        "NaN": _saved({**STATE, BIAS: torch.full((4,), torch.nan)}),
    }
    yield from ((name, ".pt", content) for name, content in pickles.items())
    arrays = {
        "objects": _zipped(w=_npy("(1,)", "|O", f"cos\nsystem\n(S'touch {MARK}'\ntR.".encode())),
        "texts": _zipped(w=_npy("(1,)", "<U1", b"abcd")),
        "a huge array": _zipped(w=_npy("(1099511627776,)")),
        "a negative shape": _zipped(w=_npy("(-1,)")),
        "a header with code": _zipped(w=_npy("__import__('os').system('touch ran')")),
        "no array": _zipped(w=b"something else"),
        "an empty archive": _zipped(),
    }
    yield from ((name, ".npz", content) for name, content in arrays.items())
    yield "an unknown ending", ".bin", b"1234"


def _specs() -> Iterator[tuple[str, bytes]]:
    """Name and text of specs that nobody should run."""
    texts = {
        "empty": b"",
        "not UTF-8": b"\xff\xfe[task]",
        "a NUL": b'[task]\nmodel = "a\0"',
        "no TOML": b"[task\nmodel",
        "deeply nested": b"a = " + b"[" * 20_000,
        "a number of 5,000 digits": b"a = " + b"9" * 5000,
        "two megabytes": b"x" * (2 << 20),
        "twice the same key": b"[task]\nmodel = 'a'\nmodel = 'b'",
        "a date for a table": b"task = 1979-05-27",
    }
    yield from texts.items()
    wrong: tuple[tuple[str, Any], ...] = (
        *((f"task.{key}", bad) for key in ("model", "weights", "loss", "data") for bad in (3, [], "no such thing!")),
        *((f"task.{key}", bad) for key in ("records", "recipe.batch") for bad in (-1, 0, 2.5, "many", 10**12)),
        *((f"task.recipe.{key}", bad) for key in ("learning_rate", "momentum") for bad in (-1.0, "fast", 1e400)),
        *((f"task.recipe.{key}", "sometimes") for key in ("mode", "reduction", "shares")),
        *(
            ("task.normalise", bad)
            for bad in ({}, {"mean": [0.0]}, {"mean": [0.0, 1.0], "std": [1.0]}, {"mean": [], "std": []})
        ),
        ("task.normalise", {"mean": [0.0], "std": [0.0]}),
        ("task.replay", {"before": "no.pt", "after": "no.pt", "batch": "no.npz"}),
        *(("checkpoints.train_steps", bad) for bad in ([], [-1], 3, ["a"])),
        *(
            ("defenses.none", bad)
            for bad in (1, "", "gausian(std=1.0)", "gaussian(std=-1.0)", "gaussian(", "tv()", "os:system('touch ran')")
        ),
        *(("defenses.none", bad) for bad in ("__import__('os').system('touch ran')", "a" * 10_000, "(" * 5_000)),
        *(("adversaries.a", bad) for bad in (1, [], "dlg(steps=0)", "gaussian(std=1.0)", ["analytic()", 3])),
        ("threat.labels", "guessed"),
        ("threat.grants", ["the record"]),
        ("threat.grants", "mask"),
        ("verdict.significance", 0.0),
        ("verdict.significance", 1e-9),
        ("verdict.recognisable", {"ssim": 2.0}),
        ("seed", -1),
        ("tsk", {}),
    )
    for number, (key, bad) in enumerate(wrong):
        yield f"{key} = {str(bad)[:30]} ({number})", toml.dump(_with(SPEC, key.split("."), bad)).encode()


def _with(table: Mapping[str, Any], where: list[str], value: Any) -> dict[str, Any]:
    first, *rest = where
    inner = _with(table.get(first) or {}, rest, value) if rest else value
    return {**table, first: inner}


def _datas() -> Iterator[tuple[str, bytes]]:
    """Name and content of data sets that nobody should read."""
    yield "no zip", b"PK\x03\x04 and then nothing"
    yield "objects", _zipped(inputs=_npy("(1,)", "|O", b"x"), labels=_npy("(1,)", "<i8", b"12345678"))
    yield "no labels", _npz(inputs=IMAGES)
    yield "too few labels", _npz(inputs=IMAGES, labels=np.arange(3))
    yield "labels that are no classes", _npz(inputs=IMAGES, labels=np.linspace(0, 1, 60))
    yield "negative labels", _npz(inputs=IMAGES, labels=-np.arange(60))
    yield "NaN", _npz(inputs=IMAGES * np.nan, labels=np.arange(60) % 4)
    yield "pixels up to 255", _npz(inputs=IMAGES * 255, labels=np.arange(60) % 4)
    yield "no record", _npz(inputs=IMAGES[:0], labels=np.arange(0))
    yield "cut", DATA[: len(DATA) // 2]


def cases() -> list[Case]:
    """Every case with the command that meets it."""
    made = []
    inspect = ("inspect", "--model", "logistic", "--shape", "1,12,12", "--draws", "3")
    for name, ending, content in _states():
        spec = toml.dump(_with(SPEC, ["task", "weights"], f"bad{ending}")).encode()
        files = {"d.npz": DATA, f"bad{ending}": content, "spec.toml": spec, **GOOD}
        made.append(Case(f"weights {ending}: {name}", files, ("check", "spec.toml")))
        after = (*inspect, "--before", "w.safetensors", "--after", f"bad{ending}")
        made.append(Case(f"update {ending}: {name}", files, after))
    for name, content in _specs():
        made.append(Case(f"spec: {name}", {**GOOD, "d.npz": DATA, "spec.toml": content}, ("audit", "spec.toml")))
    for name, content in _datas():
        files = {**GOOD, "d.npz": content, "spec.toml": toml.dump(SPEC).encode()}
        made.append(Case(f"data: {name}", files, ("audit", "spec.toml", "--quiet")))
    for command in (("check", "no.toml"), ("audit", "no.toml"), ("report", "no-run"), ("compare", "no", "nor")):
        made.append(Case(f"absent: {' '.join(command)}", {}, command))
    made.append(Case("absent update", GOOD, (*inspect, "--before", "w.pt", "--after", "no.pt")))
    return made


@contextmanager
def _watch() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def faults(case: Case, folder: Path) -> list[str]:
    """What is wrong with the answer to a case; an earlier run beside it must survive."""
    folder.mkdir(parents=True)
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    earlier = folder / "spec-run" / "result.json"
    earlier.parent.mkdir()
    earlier.write_text("earlier")
    here = Path.cwd()
    os.chdir(folder)
    try:
        with _watch():
            ended = CliRunner().invoke(app, list(case.command), env={"COLUMNS": "200"})
    finally:
        os.chdir(here)
    found = []
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        found.append(f"{type(ended.exception).__name__}: {ended.exception}")
    if ended.exit_code != 2:
        found.append(f"exit code {ended.exit_code}, not 2")
    said = [line for line in ended.output.splitlines() if line.startswith("error: ")]
    if not said or not all("; " in line or ": " in line[7:] for line in said):
        found.append(f"no clear message: {ended.output[:200]!r}")
    if "Traceback" in ended.output:
        found.append("a traceback")
    if (folder / MARK).exists() or (here / MARK).exists():
        found.append("code was run")
    if earlier.read_text() != "earlier":
        found.append("a result was lost")
    return found
