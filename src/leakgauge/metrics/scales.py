"""Multi-scale SSIM: structural similarity at several resolutions, for larger pictures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from leakgauge.errors import DomainError
from leakgauge.metrics.images import WINDOW, comparable, structure

WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""How much each resolution counts, the finest first."""


def ms_ssim(reconstruction: Tensor, truth: Tensor, *, scales: int = 5) -> Tensor:
    """Multi-scale structural similarity per image, between 0 and 1: the mean over channels of ``Π_s part_s ^ w_s``.

    A part is the mean over positions of SSIM's second factor, ``(2σ + c₂)/(v + v' + c₂)``, and at the coarsest scale
    the mean SSIM itself; between scales the picture is halved by 2 × 2 means. A negative part counts as 0. Five scales
    need 176 × 176 pixels; with fewer ``scales`` the first weights are used, scaled so that they sum to 1.

    References:
        Wang et al., Multi-Scale Structural Similarity for Image Quality Assessment, 2003.
    """
    x, y = comparable(reconstruction, truth, where="ms_ssim")
    large_enough(x.shape, scales)
    shape, total = x.shape[:-3], sum(WEIGHTS[:scales])
    x, y = x.flatten(0, -4) if shape else x[None], y.flatten(0, -4) if shape else y[None]
    product = torch.ones(x.shape[:2], dtype=x.dtype, device=x.device)
    for scale in range(scales):
        similarity, contrast = structure(x, y)
        part = similarity if scale == scales - 1 else contrast
        product = product * part.clamp(min=0) ** (WEIGHTS[scale] / total)
        if scale < scales - 1:
            x, y = F.avg_pool2d(x, 2), F.avg_pool2d(y, 2)
    return product.mean(-1).view(shape)


def large_enough(shape: Sequence[int], scales: int) -> None:
    """Refuse pictures that are smaller than SSIM's window at the coarsest scale."""
    least, side = WINDOW << (scales - 1), min(shape[-2:])
    if side < least:
        fitting = max((s for s in range(1, scales) if WINDOW << (s - 1) <= side), default=0)
        raise DomainError(
            f"{scales} scales need images of at least {least} x {least} pixels, got {tuple(shape[-2:])}",
            where="ms_ssim",
            remedy=f"say ms_ssim(scales={fitting})" if fitting > 1 else "use ssim or psnr",
        )
