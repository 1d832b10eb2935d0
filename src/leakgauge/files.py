"""Weights and updates on disk: safetensors, npz without objects, ``.pt`` read with ``weights_only=True``.

An update file carries metadata: ``kind`` (gradient, change, state), ``sign``, ``round``, ``client``, ``examples``. A
pickle that wants more than tensors is refused; nothing in a file is ever run.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from leakgauge.errors import LeakgaugeError, nearest

Kind = Literal["gradient", "change", "state"]


class FileError(LeakgaugeError):
    """A weights or update file that cannot be used."""


@dataclass(frozen=True)
class State:
    """Named tensors from a file, with what its metadata says."""

    tensors: dict[str, Tensor]
    path: Path
    metadata: Mapping[str, str] = field(default_factory=dict)

    def into(self, model: nn.Module) -> None:
        """Load the weights into a model, or say every name and shape that does not fit."""
        own = model.state_dict()
        problems = [f"{n!r} is missing" for n in own if n not in self.tensors and not n.endswith("num_batches_tracked")]
        for name, value in self.tensors.items():
            if name not in own:
                problems.append(f"{name!r} is not in the model ({nearest(name, own)})")
            elif value.shape != own[name].shape:
                problems.append(f"{name!r} has shape {tuple(value.shape)}, the model's has {tuple(own[name].shape)}")
            elif value.is_floating_point() and not bool(value.isfinite().all()):
                problems.append(f"{name!r} has values that are NaN or infinite")
        if problems:
            more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
            raise FileError(
                "; ".join(problems[:5]) + more, where=str(self.path), remedy="give the weights of this model"
            )
        model.load_state_dict(self.tensors, strict=False)


def read_state(path: Path) -> State:
    """Read named tensors by the file's ending; every fault is one clear message."""
    readers = {".safetensors": _safetensors, ".npz": _npz, ".pt": _torch, ".pth": _torch}
    if path.suffix not in readers:
        raise FileError(f"unknown ending {path.suffix!r}", where=str(path), remedy=f"use one of {', '.join(readers)}")
    if not path.is_file():
        raise FileError("there is no such file", where=str(path), remedy="check the path")
    try:
        return readers[path.suffix](path)
    except LeakgaugeError:
        raise
    except (SafetensorError, zipfile.BadZipFile, OSError, ValueError, KeyError, EOFError, RuntimeError) as fault:
        reason = str(fault).splitlines()[0][:160] if str(fault) else type(fault).__name__
        raise FileError(f"cannot be read ({reason})", where=str(path), remedy="save it again") from None


def _safetensors(path: Path) -> State:
    with safe_open(path, framework="pt") as file:
        return State({name: file.get_tensor(name) for name in file.keys()}, path, file.metadata() or {})  # noqa: SIM118


def _npz(path: Path) -> State:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    bad = [name for name, value in arrays.items() if value.dtype.kind not in "fiub"]
    if bad:
        raise FileError(f"{bad[0]!r} holds {arrays[bad[0]].dtype}", where=str(path), remedy="save numbers only")
    return State({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}, path)


def _torch(path: Path) -> State:
    try:
        read: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:  # the unpickler raises whatever the file made it stumble over
        raise FileError(
            f"is not a file of tensors only ({type(fault).__name__})",
            where=str(path),
            remedy="save the state_dict as .safetensors",
        ) from None
    if isinstance(read, Mapping) and isinstance(read.get("state_dict"), Mapping):
        read = read["state_dict"]
    if not isinstance(read, Mapping) or not all(isinstance(v, Tensor) for v in read.values()):
        raise FileError("holds no state dict", where=str(path), remedy="save model.state_dict()")
    return State({str(name): value for name, value in read.items()}, path)


def metadata_of(kind: Kind, **facts: object) -> dict[str, str]:
    """The metadata of an update file, as safetensors wants it: text to text."""
    return {"kind": kind, **{key: json.dumps(value) for key, value in facts.items()}}
