"""The metrics of images as values; their formulas are in :mod:`leakgauge.metrics.images`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.meaning import PSNR, SSIM, Meaning
from leakgauge.metrics import images, perceptual, scales
from leakgauge.metrics.base import MetricPart
from leakgauge.storage.lpips import Net, available
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


@register("metric", "lpips")
@dataclass(frozen=True, repr=False)
class Lpips(MetricPart):
    """Learned perceptual distance (:func:`~leakgauge.metrics.lpips`): how different two pictures look to a network.

    ``net`` is ``alex`` (nearest to people's judgement, from 31 × 31 pixels on) or ``vgg`` (from 16 × 16 pixels on).
    Lower is nearer, so it is shown beside a judge and does not judge. Its weights come by ``leakgauge data fetch
    lpips``. It was fitted to photographs of 64 × 64 pixels: of small grey pictures it says less.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)
    meaning: ClassVar[Meaning] = Meaning(
        "lpips",
        "lpips",
        "learned perceptual distance (LPIPS): 0 is the same picture, about 1 is unrelated",
        threshold=0.2,
        direction="lower",
        worst=None,
        best=0.0,
        digits=3,
    )

    net: Net = "alex"

    def __post_init__(self) -> None:
        guards.choice(self.net, "net", "lpips", ("alex", "vgg"))

    def on(self, domain: Domain) -> Self:
        metric = super().on(domain)
        perceptual.visible_to(self.net, domain.shape)
        available(self.net)
        return metric

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        return perceptual.lpips(reconstruction, original, net=self.net)

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        return perceptual.pairwise_lpips(reconstructions, originals, net=self.net)


@register("metric", "ms_ssim")
@dataclass(frozen=True, repr=False)
class MsSsim(MetricPart):
    """Multi-scale structural similarity (:func:`~leakgauge.metrics.ms_ssim`), for larger pictures."""

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)
    meaning: ClassVar[Meaning] = Meaning(
        "ms_ssim",
        "ms-ssim",
        "multi-scale structural similarity (MS-SSIM): 1 is the same picture, about 0 is unrelated",
        threshold=0.6,
    )

    scales: int = 5

    def __post_init__(self) -> None:
        guards.count(self.scales, "scales", "ms_ssim")
        if not 2 <= self.scales <= len(scales.WEIGHTS):
            what = f"scales must lie in 2..{len(scales.WEIGHTS)}, got {self.scales}"
            raise DomainError(what, where="ms_ssim", remedy="say scales=5, or ssim() for one scale")

    def on(self, domain: Domain) -> Self:
        metric = super().on(domain)
        scales.large_enough(domain.shape, self.scales)
        return metric

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        return scales.ms_ssim(reconstruction, original, scales=self.scales)
