"""Records from a folder of images, one sub-folder per class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from leakgauge.data.arrays import Arrays
from leakgauge.errors import DataError
from leakgauge.storage.streams import allowed, reading

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""What is opened as a picture, whatever its name. Others start programs: an EPS is drawn by Ghostscript."""
MOST_PIXELS = 1 << 24
"""Of one picture: 4096 x 4096."""
_MODES = {"1": "L", "L": "L", "RGB": "RGB", "P": "RGB"}


@dataclass(frozen=True)
class Folder:
    """The contents of a folder of images: records, its own test records if any, and the class names."""

    train: Arrays
    test: Arrays | None
    class_names: tuple[str, ...]


def read_folder(path: Path) -> Folder:
    """The images below ``path``; the class is the name of the sub-folder, in alphabetical order.

    ``path/<class>/<image>``, or ``path/train/<class>/<image>`` with ``path/test/<class>/<image>``.
    Anything that Pillow reads as 8-bit grey or colour is accepted. All images must have the same size and
    channels, and a file that is not an image is an error, because skipping it would silently change the
    audit. Names that start with a dot are ignored.
    """
    with reading(path):
        folders = {entry.name: entry for entry in _visible(path) if entry.is_dir()}
    if set(folders) == {"train", "test"}:
        names = _class_names(folders["train"])
        if _class_names(folders["test"]) != names:
            raise DataError(
                "train and test have different classes", where=str(path), remedy="give both the same class folders"
            )
        return Folder(_records(folders["train"], names), _records(folders["test"], names), names)
    names = _class_names(path)
    return Folder(_records(path, names), None, names)


def _visible(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))


def _class_names(path: Path) -> tuple[str, ...]:
    with reading(path):
        names = tuple(entry.name for entry in _visible(path) if entry.is_dir())
    if not names:
        raise DataError(
            "has no sub-folders", where=str(path), remedy="put the images of each class into its own folder"
        )
    return names


def _records(path: Path, names: Sequence[str]) -> Arrays:
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    first: Path | None = None
    packed = unpacked = 0
    for label, name in enumerate(names):
        with reading(path / name):
            files = [entry for entry in _visible(path / name) if not entry.is_dir()]
        for file in files:
            images.append(_image(file, images[0].shape if images else None, first))
            labels.append(label)
            packed, unpacked = packed + file.stat().st_size, unpacked + images[-1].nbytes
            if unpacked > allowed(packed):
                raise DataError(
                    f"its pictures unpack {packed} bytes to {unpacked}",
                    where=str(path),
                    remedy="give smaller pictures, or fewer empty ones",
                )
            first = first or file
    if not images:
        raise DataError(
            "contains no images", where=str(path), remedy="put the images of each class into its own folder"
        )
    return Arrays(np.stack(images), np.asarray(labels, np.int64))


def _image(path: Path, shape: tuple[int, ...] | None, first: Path | None) -> npt.NDArray[np.uint8]:
    """One image as ``[C, H, W]``; its size is compared before its pixels are decoded."""
    try:
        with warnings.catch_warnings():
            # a picture of a billion pixels is a fault here, not a warning
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with reading(path, "remove or replace it"), Image.open(path, formats=FORMATS) as image:
                mode = _MODES.get(image.mode)
                if mode is None:
                    raise DataError(f"has mode {image.mode}", where=str(path), remedy="save it as 8-bit grey or RGB")
                size = (1 if mode == "L" else 3, image.height, image.width)
                if image.height * image.width > MOST_PIXELS:
                    raise DataError(
                        f"has {image.width} x {image.height} pixels",
                        where=str(path),
                        remedy=f"give pictures of at most {MOST_PIXELS:,} pixels",
                    )
                if shape is not None and size != shape:
                    raise DataError(
                        f"has shape {size}, but {first} has {shape}",
                        where=str(path),
                        remedy="resize all images to one size",
                    )
                pixels = np.asarray(image.convert(mode), np.uint8)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, SyntaxError) as fault:
        raise DataError(f"cannot be read ({fault})", where=str(path), remedy="remove or replace it") from None
    return pixels[None] if mode == "L" else np.moveaxis(pixels, 2, 0)
