"""Records as inline PNG pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image as Pillow

from leakgauge.report.reading import Input

LARGEST = 512
"""Pixels per side; larger pictures are shrunk, so that a report stays a file one can mail."""


def data_uri(image: Input | None) -> str | None:
    """``data:image/png;base64,…`` of a ``[C, H, W]`` image in [0, 1]; None for what is no picture."""
    if image is None or image.ndim != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
        return None
    levels = np.rint(np.clip(np.nan_to_num(image), 0, 1) * 255).astype(np.uint8)
    picture = Pillow.fromarray(levels[0] if len(levels) == 1 else np.ascontiguousarray(levels.transpose(1, 2, 0)))
    picture.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
