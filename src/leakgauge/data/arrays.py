"""Labelled inputs as stored on disk, before they become records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from leakgauge.errors import DataError
from leakgauge.types import Domain, Records

CHANNELS = (1, 3)
MOST_CLASSES = 65_536
"""More classes than any image set has: a larger label is a fault, not a class, and would size a layer."""


@dataclass(frozen=True)
class Arrays:
    """Inputs ``[n, …]`` and labels ``[n]``; ``uint8`` inputs stand for ``value / 255``.

    Kept in the type of the file: CIFAR-10 takes 180 MB like this and 720 MB as records.
    """

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, domain: Domain, index: npt.NDArray[np.int64] | None = None) -> Records:
        """All records, or those at ``index``, as tensors; images as float32 in [0, 1]."""
        chosen = slice(None) if index is None else index
        scaled = self.inputs.dtype == np.uint8
        # a copy: a tensor must not share memory with a buffer that others read
        inputs = np.array(self.inputs[chosen], np.float32 if scaled else None, order="C")
        if scaled:
            inputs /= np.float32(255)
        return Records(torch.from_numpy(inputs), torch.tensor(self.labels[chosen]), domain)

    def moments(self) -> tuple[list[float], list[float]]:
        """The mean and the standard deviation of each channel of images, in [0, 1]; block by block to save memory."""
        places = math.prod(self.inputs.shape[2:]) * len(self)
        total = np.zeros((2, self.inputs.shape[1]))
        for start in range(0, len(self), 1024):
            block = self.inputs[start : start + 1024].astype(np.float64)
            block /= 255 if self.inputs.dtype == np.uint8 else 1
            total += block.sum((0, 2, 3)), np.square(block).sum((0, 2, 3))
        mean, square = total / max(places, 1)
        return mean.tolist(), np.sqrt(np.maximum(square - mean**2, 0)).tolist()


def checked(images: npt.NDArray[Any], labels: npt.NDArray[Any], *, where: str) -> Arrays:
    """Images ``[n, C, H, W]``, ``[n, H, W, C]`` or ``[n, H, W]`` and their labels, or a DataError.

    ``uint8`` stays as it is; floats must be finite and lie in [0, 1]. Where both the second and the
    last axis could be channels, the second is.
    """
    labels = checked_labels(labels, where=where)
    images = _channels_first(images, where=where)
    if len(images) != len(labels):
        raise DataError(
            f"{len(images)} images but {len(labels)} labels", where=where, remedy="give one label per image"
        )
    if not len(images):
        raise DataError("contains no records", where=where, remedy="give at least one record")
    if images.dtype != np.uint8:
        images = _checked_floats(images, where=where)
    return Arrays(images, labels)


def checked_labels(labels: npt.NDArray[Any], *, where: str) -> npt.NDArray[np.int64]:
    """One class per record, numbered from 0, or a DataError."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"labels are {labels.dtype} of shape {labels.shape}",
            where=where,
            remedy="give one integer class per record",
        )
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < MOST_CLASSES):
        raise DataError(
            f"labels span {int(labels.min())}..{int(labels.max())}", where=where, remedy="number the classes 0, 1, 2 …"
        )
    return labels.astype(np.int64)


def _channels_first(images: npt.NDArray[Any], *, where: str) -> npt.NDArray[Any]:
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in CHANNELS and images.shape[3] in CHANNELS:
        images = np.moveaxis(images, 3, 1)
    if images.ndim != 4 or images.shape[1] not in CHANNELS or 0 in images.shape[2:]:
        raise DataError(
            f"inputs have shape {images.shape}", where=where, remedy="give images as [n, C, H, W] with 1 or 3 channels"
        )
    return images


def _checked_floats(images: npt.NDArray[Any], *, where: str) -> npt.NDArray[np.float32]:
    if images.dtype.kind != "f":
        raise DataError(f"inputs are {images.dtype}", where=where, remedy="save uint8, or floats in [0, 1]")
    if not np.isfinite(images).all():
        raise DataError("inputs contain NaN or infinity", where=where, remedy="remove those records")
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        raise DataError(
            f"inputs span {low:g}..{high:g}", where=where, remedy="scale them to [0, 1]; normalise inside the model"
        )
    return images.astype(np.float32)
