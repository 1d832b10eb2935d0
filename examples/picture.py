"""The picture of the demo: originals on top, then a row per protection: generic attack left, adaptive attack right."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import torch
from PIL import Image, ImageDraw, ImageFont

import leakgauge as lg

SCALE, GAP = 3, 8  # pixels per pixel; between images
MARGIN, NAMES, PANELS, CAPTION = 30, 200, 44, 26  # around everything; names of rows; between panels; below an image
INK, SOFT, RULE, PAPER = (28, 30, 34), (112, 116, 124), (222, 224, 228), (255, 255, 255)
LEAKED = (190, 30, 45)
RECOGNISABLE = 0.5  # SSIM
Panels = tuple[torch.Tensor, torch.Tensor]


class Picture:
    """A sheet that rows of images are put on, two panels wide."""

    def __init__(self, records: lg.Records, rows: int) -> None:
        self.truth = records.inputs
        self.side = self.truth.shape[-1] * SCALE
        self.cell, self.step = self.side + GAP, self.side + CAPTION
        panel = len(self.truth) * self.cell - GAP
        self.left = MARGIN + NAMES, MARGIN + NAMES + panel + PANELS
        self.width, self.y = self.left[1] + panel + MARGIN, MARGIN
        self.fonts = {size: ImageFont.load_default(size) for size in (13, 14, 15, 16, 22)}
        self.sheet = Image.new("RGB", (self.width, 2 * MARGIN + 190 + rows * self.step), PAPER)
        self.pen = ImageDraw.Draw(self.sheet)

    def text(self, x: int, y: int, what: str, size: int, ink: tuple[int, int, int], anchor: str = "la") -> None:
        self.pen.text((x, y), what, font=self.fonts[size], fill=ink, anchor=anchor)

    def title(self, what: str, notes: Sequence[str]) -> None:
        self.text(MARGIN, self.y, what, 22, INK)
        for i, note in enumerate(notes):
            self.text(MARGIN, self.y + 34 + 19 * i, note, 14, SOFT)
        self.y += 46 + 19 * len(notes)

    def heads(self, names: tuple[str, str]) -> None:
        for x, name in zip(self.left, names, strict=True):
            self.text(x, self.y, name, 16, INK)
        self.y += 26

    def row(self, name: str, panels: Panels, *, note: str = "", scores: bool = True) -> None:
        """One image per record in both panels; below each its PSNR, red where it is recognisable."""
        lines = [(line, 15, INK) for line in name.split("\n")] + ([(note, 14, SOFT)] if note else [])
        for i, (line, size, ink) in enumerate(lines):
            self.text(MARGIN, self.y + (self.side - 20 * len(lines)) // 2 + 20 * i, line, size, ink)
        for left, images in zip(self.left, panels, strict=True):
            psnr, ssim = lg.metrics.psnr(images, self.truth), lg.metrics.ssim(images, self.truth)
            for i, image in enumerate(images):
                x = left + i * self.cell
                self.sheet.paste(thumbnail(image), (x, self.y))
                if scores:
                    ink = LEAKED if ssim[i] >= RECOGNISABLE else SOFT
                    self.text(x + self.side // 2, self.y + self.side + 3, f"{psnr[i]:.1f}", 13, ink, anchor="ma")
        self.y += self.step

    def rule(self) -> None:
        self.pen.line((MARGIN, self.y, self.width - MARGIN, self.y), fill=RULE)
        self.y += 10

    def png(self) -> bytes:
        out = BytesIO()
        self.sheet.crop((0, 0, self.width, self.y + MARGIN - 10)).save(out, format="PNG", optimize=True)
        return out.getvalue()


def thumbnail(image: torch.Tensor) -> Image.Image:
    """``[1, h, w]`` in [0, 1], enlarged without smoothing: what is shown is what was reconstructed."""
    grey = (image[0].clamp(0, 1) * 255).round().byte()
    small = Image.frombytes("L", (grey.shape[1], grey.shape[0]), grey.numpy().tobytes())
    return small.resize((small.width * SCALE, small.height * SCALE), Image.Resampling.NEAREST)
