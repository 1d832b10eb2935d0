"""The weights of LPIPS in the user's cache: where they are, what they must be, and what to type if they are not there.

``leakgauge.data`` puts them there on request, ``leakgauge.metrics`` reads them; neither knows the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torch import Tensor

from leakgauge.errors import MissingDataError
from leakgauge.storage.cache import cache_folder
from leakgauge.storage.states import FileError, read_state

Net = Literal["alex", "vgg"]
NAME = "lpips"
FETCH_LPIPS = f"type: leakgauge data fetch {NAME}"
CONTENT: Mapping[Net, str] = {
    "alex": "f85e17aae238c5918fac39c2bc13e4a0e287243f884064ecda3a5c95fb21b8b8",
    "vgg": "986e6efade02ce3125eb51fa070f6fb4641275c2d488d0e75d228923c164ea12",
}
"""The SHA-256 of the tensors of each network, see :func:`content_of`: of values, whatever file they are in."""


def lpips_file(net: Net, folder: Path | None = None) -> Path:
    """Where the weights of a network are, or would be."""
    return (folder or cache_folder() / NAME) / f"{net}.safetensors"


def content_of(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 over the names, shapes and bytes of tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(value.shape)} {value.dtype};".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def available(net: Net) -> Path:
    """The file of the weights, or a MissingDataError with what to type."""
    path = lpips_file(net)
    if not path.is_file():
        what = f"the weights of LPIPS ({net}) are not on this machine"
        raise MissingDataError(what, where=NAME, remedy=FETCH_LPIPS)
    return path


def read_lpips(net: Net) -> dict[str, Tensor]:
    """The weights of a network: ``conv0.weight [O, I, H, W]``, ``conv0.bias``, …, ``head0 [channels]``, …

    A MissingDataError with what to type if they are not there; a FileError if they are not the published ones.
    """
    path = available(net)
    tensors = read_state(path).tensors
    if content_of(tensors) != CONTENT[net]:
        raise FileError("does not hold the published weights", where=str(path), remedy=f"delete it and {FETCH_LPIPS}")
    return tensors
