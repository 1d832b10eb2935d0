"""Reconstructions beside what noise gives, as one private picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from leakgauge.errors import DataError
from leakgauge.inspect.findings import Finding
from leakgauge.storage.private import write
from leakgauge.types import Records


def picture(findings: Sequence[Finding], path: Path, known: Records | None = None) -> None:
    """One row per update: reconstruction, null and, where given, known records; a private PNG file.

    Where the sign of an update cannot be told, the reconstruction of its opposite comes second; else that is grey.
    """
    undecided = any(f.other is not None for f in findings)
    rows = [
        torch.cat(
            [
                f.inputs,
                *([torch.full_like(f.inputs, 0.5) if f.other is None else f.other.inputs] if undecided else []),
                f.null,
                *([known.inputs.float()] if known is not None else []),
            ]
        )
        for f in findings
    ]
    if rows[0].dim() != 4 or rows[0].shape[1] not in (1, 3):
        raise DataError("these records are no images", where="inspect", remedy="leave the picture out")
    lines = [torch.cat([nn.functional.pad(x, (1, 1, 1, 1), value=0.5) for x in row], dim=2) for row in rows]
    pixels = torch.cat(lines, dim=1).clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    out = io.BytesIO()
    image.resize((image.width * 4, image.height * 4), Image.Resampling.NEAREST).save(out, "PNG")
    write(path, out.getvalue())
