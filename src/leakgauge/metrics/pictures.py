"""The metrics of images as values; their formulas are in :mod:`leakgauge.metrics.images`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from leakgauge.expr import register
from leakgauge.meaning import PSNR, SSIM, Meaning
from leakgauge.metrics import images
from leakgauge.metrics.base import MetricPart
from leakgauge.types import Domain, Kind


@register("metric", "ssim")
@dataclass(frozen=True, repr=False)
class Ssim(MetricPart):
    """Structural similarity (:func:`~leakgauge.metrics.ssim`): judges images of at least 11 × 11 pixels."""

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)
    meaning: ClassVar[Meaning] = SSIM

    def on(self, domain: Domain) -> Self:
        metric = super().on(domain)
        images.large_enough(domain.shape)
        return metric

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        return images.ssim(reconstruction, original)

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        return images.pairwise_ssim(reconstructions, originals)


@register("metric", "psnr")
@dataclass(frozen=True, repr=False)
class Psnr(MetricPart):
    """Peak signal-to-noise ratio in dB (:func:`~leakgauge.metrics.psnr`): judges small images, tells exact ones."""

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)
    meaning: ClassVar[Meaning] = PSNR

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        return images.psnr(reconstruction, original)

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        return -10 * images.pairwise_mse(reconstructions, originals).log10()


@register("metric", "mse")
@dataclass(frozen=True, repr=False)
class Mse(MetricPart):
    """Mean squared error (:func:`~leakgauge.metrics.mse`): matches the images of a batch with its records."""

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)
    meaning: ClassVar[Meaning] = Meaning(
        "mse",
        "mse",
        "mean squared error of pixels in [0, 1]: 0 is the same picture",
        threshold=0.01,
        exact=1e-6,
        direction="lower",
        worst=1.0,
        best=0.0,
        digits=4,
    )

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        return images.mse(reconstruction, original)

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        return images.pairwise_mse(reconstructions, originals)
