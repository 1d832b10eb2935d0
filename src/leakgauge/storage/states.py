"""Weights and updates on disk: safetensors, npz without objects, ``.pt`` read with ``weights_only=True``.

An update file carries metadata: ``kind`` (gradient, change, state), ``sign``, ``round``, ``client``, ``examples``. A
pickle that wants more than tensors is refused; nothing in a file is ever run. Sizes in a header are only claims: they
are compared with the file before anything is allocated, and every fault is one :class:`FileError`.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors import safe_open
from torch import Tensor, nn

from leakgauge.errors import LeakgaugeError, brief, nearest
from leakgauge.storage.streams import DEFLATE, allowed
from leakgauge.storage.torch_files import harmful

Kind = Literal["gradient", "change", "state"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ENDINGS = (".safetensors", ".npz", ".pt", ".pth")
SUGGESTED = 5
"""How many foreign names get a suggestion: a file may hold any number of them."""


class FileError(LeakgaugeError):
    """A weights or update file that cannot be used."""


@dataclass(frozen=True)
class State:
    """Named tensors from a file, with what its metadata says."""

    tensors: dict[str, Tensor]
    path: Path
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind | None:
        """What the file says it holds, if it says so."""
        stated = self.metadata.get("kind")
        if stated is None:
            return None
        for kind in KINDS:
            if stated == kind:
                return kind
        raise FileError(
            f"its metadata says kind = {stated[:40]!r}", where=str(self.path), remedy=nearest(stated[:40], KINDS)
        )

    def fact(self, name: str) -> Any:
        """One fact of the metadata (``round``, ``client``, ``sign`` …), or None; text that is no JSON stays text."""
        stated = self.metadata.get(name)
        if stated is None:
            return None
        try:
            return json.loads(stated)
        except (ValueError, RecursionError):
            return stated

    def misfits(self, model: nn.Module) -> list[str]:
        """Every name, shape and type that does not fit the model's state."""
        own = model.state_dict()
        misfits = [f"{n!r} is missing" for n in own if n not in self.tensors and not n.endswith("num_batches_tracked")]
        foreign = 0
        for name, value in self.tensors.items():
            if name not in own:
                foreign += 1
                hint = f" ({nearest(name, own)})" if foreign <= SUGGESTED else ""
                misfits.append(f"{brief(name)!r} is not in the model{hint}")
            elif value.shape != own[name].shape:
                misfits.append(f"{name!r} has shape {tuple(value.shape)}, the model's has {tuple(own[name].shape)}")
            elif value.is_floating_point() != own[name].is_floating_point():
                misfits.append(f"{name!r} holds {_type(value)}, the model's holds {_type(own[name])}")
        return misfits

    def into(self, model: nn.Module) -> None:
        """Load the weights into a model, or say every name, shape and type that does not fit."""
        if self.kind in ("gradient", "change"):
            raise FileError(f"holds a {self.kind}, not weights", where=str(self.path), remedy="give the weights")
        problems = self.misfits(model)
        if problems:
            raise FileError(some(problems), where=str(self.path), remedy="give the weights of this model")
        model.load_state_dict(self.tensors, strict=False)


def some(problems: list[str], most: int = 5) -> str:
    """The first few problems, and how many more there are."""
    more = f" (and {len(problems) - most} more)" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def read_state(path: Path) -> State:
    """Read named tensors by the file's ending; every fault, NaN and infinity included, is one clear message."""
    readers = {".safetensors": _safetensors, ".npz": _npz, ".pt": _torch, ".pth": _torch}
    if path.suffix not in readers:
        raise FileError(f"unknown ending {path.suffix!r}", where=str(path), remedy=f"use one of {', '.join(ENDINGS)}")
    try:
        _present(path)
        return _finite(readers[path.suffix](path))
    except LeakgaugeError:
        raise
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as fault:  # readers raise whatever they stumble over; a panic in Rust is a BaseException
        lines = str(fault).splitlines()
        reason = lines[0][:160] if lines else type(fault).__name__
        raise FileError(f"cannot be read ({reason})", where=str(path), remedy="save it again") from None


def _present(path: Path) -> None:
    if path.is_dir():
        raise FileError("is a folder", where=str(path), remedy="give a file")
    if not path.exists():
        raise FileError("no such file", where=str(path), remedy="check the path")
    if not path.is_file():  # reading a pipe or a device may never end
        raise FileError("is no regular file", where=str(path), remedy="copy it to a file first")
    if not path.stat().st_size:
        raise FileError("is empty", where=str(path), remedy="save it again")


def _finite(state: State) -> State:
    if not state.tensors:
        raise FileError("contains no tensors", where=str(state.path), remedy="save model.state_dict()")
    for name, value in state.tensors.items():
        if value.is_complex():
            raise FileError(f"{name!r} holds complex numbers", where=str(state.path), remedy="save real numbers")
        if value.is_floating_point():
            bad = int((~value.float().isfinite()).sum())  # small floats have no isfinite of their own
            if bad and value.dtype == torch.float64:  # a float64 beyond float32 is finite
                bad = int((~value.isfinite()).sum())
            if bad:
                raise FileError(
                    f"{name!r} has {bad} values that are NaN or infinite",
                    where=str(state.path),
                    remedy="give a state that has not diverged",
                )
    return state


def _safetensors(path: Path) -> State:
    with path.open("rb") as raw:
        head = raw.read(8)
    length, size = int.from_bytes(head, "little"), path.stat().st_size
    if len(head) < 8 or length > size - 8:
        raise FileError(
            f"its header claims {length} bytes, the file has {max(size - 8, 0)}",
            where=str(path),
            remedy="it is truncated or not a safetensors file; save it again",
        )
    with safe_open(path, framework="pt") as file:
        return State({name: file.get_tensor(name) for name in file.keys()}, path, file.metadata() or {})  # noqa: SIM118


def _npz(path: Path) -> State:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        _members(path, members.values(), (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        return State({name: _array(path, archive, info) for name, info in members.items()}, path)


def _members(path: Path, members: Collection[zipfile.ZipInfo], packings: tuple[int, ...]) -> None:
    """Refuse what a zip directory claims and its file cannot hold."""
    size = path.stat().st_size
    for info in members:
        where = f"{path}, {info.filename}"
        if info.compress_type not in packings:
            raise FileError("is packed in an unusual way", where=where, remedy="save it again")
        held = min(info.compress_size, size)
        if info.file_size > (held if info.compress_type == zipfile.ZIP_STORED else DEFLATE * (held + 1)):
            raise FileError(f"claims {info.file_size} bytes, the file has {size}", where=where, remedy="save it again")
    total = sum(info.file_size for info in members)
    if total > allowed(size):
        raise FileError(
            f"unpacks {size} bytes to {total}", where=str(path), remedy="save it unpacked, with numpy.savez"
        )


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Tensor:
    """One array, read only after its header agrees with the size of its data."""
    where = f"{path}, {info.filename}"
    with archive.open(info) as stream:
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise FileError(f"is npy of version {version}", where=where, remedy="save plain numbers with numpy.savez")
        shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
        if dtype.hasobject or dtype.kind not in "fiub":
            raise FileError(f"holds {dtype} values", where=where, remedy="save numbers only; objects are never read")
        left = info.file_size - stream.tell()
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != left:
            raise FileError(f"claims the shape {shape} but holds {left} bytes", where=where, remedy="save it again")
        body = stream.read()
    flat = np.frombuffer(body, dtype)
    array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return torch.from_numpy(np.array(array, dtype=dtype.newbyteorder("="), order="C"))


def _torch(path: Path) -> State:
    if not zipfile.is_zipfile(path):
        raise FileError(
            "is no zip archive, as torch.save writes them",
            where=str(path),
            remedy="save the state_dict as .safetensors",
        )
    with zipfile.ZipFile(path) as archive:
        _members(path, archive.infolist(), (zipfile.ZIP_STORED,))
    if reason := harmful(path):
        raise FileError(reason, where=str(path), remedy="save the state_dict as .safetensors")
    # first without memory: on the meta device a claim of a terabyte costs nothing
    _honest(path, _loaded(path, "meta"))
    return State(_honest(path, _loaded(path, "cpu")), path)


def _loaded(path: Path, device: str) -> dict[str, Tensor]:
    try:
        read: Any = torch.load(path, map_location=device, weights_only=True)
    except Exception as fault:  # the unpickler raises whatever the file made it stumble over
        raise FileError(
            f"is not a file of tensors only ({type(fault).__name__})",
            where=str(path),
            remedy="save the state_dict as .safetensors",
        ) from None
    if isinstance(read, Mapping) and isinstance(read.get("state_dict"), Mapping):
        read = read["state_dict"]
    if not isinstance(read, Mapping) or not all(isinstance(v, Tensor) for v in read.values()):
        raise FileError("contains no state dict", where=str(path), remedy="save model.state_dict()")
    if not all(v.layout == torch.strided and not v.is_quantized for v in read.values()):
        raise FileError("holds sparse or quantised tensors", where=str(path), remedy="save dense ones")
    return {str(name): value.detach() for name, value in read.items()}


def _honest(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Refuse tensors that are larger than their storage, or storage that is larger than the file."""
    size, total = path.stat().st_size, sum(value.numel() * value.element_size() for value in tensors.values())
    if total > allowed(size):  # many views of one storage
        raise FileError(
            f"claims {total} bytes of tensors, the file has {size}", where=str(path), remedy="save it again"
        )
    for name, value in tensors.items():
        held = value.untyped_storage().nbytes()
        if held > size or value.numel() * value.element_size() > held:
            raise FileError(
                f"{name!r} claims the shape {tuple(value.shape)}, the file has {size} bytes",
                where=str(path),
                remedy="save it again, with .contiguous() tensors",
            )
    return tensors


def metadata_of(kind: Kind, **facts: object) -> dict[str, str]:
    """The metadata of an update file, as safetensors wants it: text to text."""
    return {"kind": kind, **{key: json.dumps(value) for key, value in facts.items()}}
