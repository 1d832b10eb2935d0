"""How close a reconstruction is to the truth: one definition per metric, in [0, 1], clipped, data range 1.

The rules, the same for all of them:

- inputs ``[..., C, H, W]`` of one shape, results ``[...]`` in float64, computed in float64 from the given dtype;
- reconstructions are clipped to [0, 1]; a truth outside [0, 1] is an error, since it was not de-normalised;
- a pixel that is NaN or infinite says nothing, so it scores as mid-grey, 0.5: a diverged attack gets the score of
  an uninformed guess, never a NaN that poisons a mean or drops out of it. :func:`non_finite` flags such images.

Other papers use other conventions (normalised space, no clipping, data range of the target); they live in ``papers/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp

import torch
from torch import Tensor

from leakgauge.errors import DomainError

GREY = 0.5
ROUNDING = 1e-4  # de-normalising in float32 leaves [0, 1] by a few ulp; a normalised image leaves it by far more
WINDOW, SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03


def mse(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error per image: ``(1/CHW) Σ (x̂ − x)²``, after clipping x̂ to [0, 1]. Between 0 and 1."""
    ours, theirs = comparable(reconstruction, truth, where="mse")
    return (ours - theirs).square().mean((-3, -2, -1))


def psnr(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio per image, in dB: ``−10 log₁₀ mse``, with peak 1.

    ``+inf`` only for images that are equal bit by bit (after clipping); everything else is finite, so exact
    recoveries in float32 (about 150 dB) and in float64 (about 340 dB) can be told apart.
    Take the mean of per-image values, not the PSNR of a mean error.
    """
    ours, theirs = comparable(reconstruction, truth, where="psnr")
    gap = (ours - theirs).abs()
    largest = gap.amax((-3, -2, -1), keepdim=True)
    # relative to the largest error, or squares of tiny errors would underflow to "identical"
    spread = (gap / largest).square().mean((-3, -2, -1))
    largest = largest[..., 0, 0, 0]
    return torch.where(largest == 0, torch.inf, -20 * largest.log10() - 10 * spread.log10())


def ssim(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity per image, between −1 and 1: the mean over positions and channels of

    ``(2 μ μ' + c₁)(2 σ + c₂) / ((μ² + μ'² + c₁)(v + v' + c₂))``

    with means, variances and covariance under an 11 × 11 Gaussian window of std 1.5, ``c₁ = 0.01²``, ``c₂ = 0.03²``.
    Only windows inside the image count, as in scikit-image with ``gaussian_weights``; hence images under 11 × 11
    have no SSIM, and get an error rather than a second definition.

    References:
        Wang et al., Image Quality Assessment: From Error Visibility to Structural Similarity, 2004.
    """
    x, y = comparable(reconstruction, truth, where="ssim")
    large_enough(x.shape)
    return _similarity(x, y, _moments(x), _moments(y))


def pairwise_mse(reconstructions: Tensor, truths: Tensor) -> Tensor:
    """:func:`mse` of every reconstruction ``[m, C, H, W]`` with every truth ``[n, C, H, W]``, ``[m, n]``."""
    x, y = paired(reconstructions, truths, "mse")
    # through differences: the matrix product |x|² − 2xy + |y|² would cancel where images are nearly equal
    gaps = torch.cdist(x.flatten(1), y.flatten(1), compute_mode="donot_use_mm_for_euclid_dist")
    return gaps.square() / x[0].numel()


def pairwise_ssim(reconstructions: Tensor, truths: Tensor) -> Tensor:
    """:func:`ssim` of every reconstruction with every truth, ``[m, n]``; what one image needs is computed once."""
    x, y = paired(reconstructions, truths, "ssim")
    large_enough(x.shape)
    own, theirs = _moments(x), _moments(y)
    rows = [_similarity(x[i], y, (own[0][i], own[1][i]), theirs) for i in range(len(x))]
    return torch.stack(rows) if rows else x.new_zeros(0, len(y))


def large_enough(shape: Sequence[int]) -> None:
    """Refuse images that are smaller than SSIM's window."""
    if min(shape[-2:]) < WINDOW:
        raise DomainError(
            f"SSIM is defined for images of at least {WINDOW} x {WINDOW} pixels, got {tuple(shape[-2:])}",
            where="ssim",
            remedy="use psnr or mse for smaller images",
        )


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance under every window."""
    mean = _blur(x)
    return mean, _blur(x * x) - mean**2


def _similarity(x: Tensor, y: Tensor, of_x: tuple[Tensor, Tensor], of_y: tuple[Tensor, Tensor]) -> Tensor:
    light, contrast = _factors(x, y, of_x, of_y)
    return (light * contrast).mean((-3, -2, -1))


def structure(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """SSIM and the mean of its second factor, per image and channel, of images that are comparable."""
    light, contrast = _factors(x, y, _moments(x), _moments(y))
    return (light * contrast).mean((-2, -1)), contrast.mean((-2, -1))


def _factors(x: Tensor, y: Tensor, of_x: tuple[Tensor, Tensor], of_y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    (mean_x, var_x), (mean_y, var_y) = of_x, of_y
    cov = _blur(x * y) - mean_x * mean_y
    light = (2 * mean_x * mean_y + K1**2) / (mean_x**2 + mean_y**2 + K1**2)
    return light, (2 * cov + K2**2) / (var_x + var_y + K2**2)


def non_finite(reconstruction: Tensor) -> Tensor:
    """Which images hold a NaN or infinite pixel, ``[..., C, H, W] -> [...]``: report their number beside a mean."""
    return ~reconstruction.isfinite().flatten(-3).all(-1)


def distance(reconstruction: Tensor, truth: Tensor, *, axes: int = 3) -> Tensor:
    """``‖x̂ − x‖₂`` over the last ``axes`` axes, in the space given and unclipped: for the adversarial risk at δ.

    Also for records that are no images (tables: ``axes=1``). A reconstruction with a non-finite entry is infinitely
    far away, that is, a failure at every δ.
    """
    _same_shape(reconstruction, truth, "distance")
    gap: Tensor = torch.linalg.vector_norm(reconstruction.detach().double() - truth.detach().double(), dim=_last(axes))
    return gap.nan_to_num(nan=torch.inf, posinf=torch.inf)


def comparable(reconstruction: Tensor, truth: Tensor, *, where: str) -> tuple[Tensor, Tensor]:
    """Both in float64 and in [0, 1], by the rules of this module; errors for what cannot be compared."""
    _same_shape(reconstruction, truth, where)
    return _scaled(reconstruction, truth, where)


def paired(reconstructions: Tensor, truths: Tensor, where: str) -> tuple[Tensor, Tensor]:
    """The same for two sets ``[m, C, H, W]`` and ``[n, C, H, W]``."""
    refuse_others(where, reconstructions, truths)
    if reconstructions.ndim != 4 or reconstructions.shape[1:] != truths.shape[1:]:
        raise DomainError(
            f"reconstructions {list(reconstructions.shape)} and truths {list(truths.shape)} differ in shape",
            where=where,
            remedy="give images as [m, C, H, W] and [n, C, H, W]",
        )
    return _scaled(reconstructions, truths, where)


def _scaled(reconstruction: Tensor, truth: Tensor, where: str) -> tuple[Tensor, Tensor]:
    if truth.ndim < 3:
        raise DomainError(f"images are [..., C, H, W], got {list(truth.shape)}", where=where, remedy="use distance()")
    if not (truth.is_floating_point() and reconstruction.is_floating_point()):
        raise DomainError(
            f"images are floats in [0, 1], got {reconstruction.dtype} and {truth.dtype}",
            where=where,
            remedy="divide bytes by 255",
        )
    x, y = reconstruction.detach().double(), truth.detach().double()
    if not bool(((y >= -ROUNDING) & (y <= 1 + ROUNDING)).all()):
        raise DomainError(
            f"the truth must lie in [0, 1], got {y.min().item():.4g} .. {y.max().item():.4g}",
            where=where,
            remedy="de-normalise images before measuring",
        )
    return torch.where(x.isfinite(), x, GREY).clamp(0, 1), y.clamp(0, 1)


def refuse_others(where: str, *values: object, of: str = "inputs") -> None:
    """Refuse what is no tensor: metrics compare the inputs (or labels) of records and of reconstructions."""
    for value in values:
        if not isinstance(value, Tensor):
            held = isinstance(getattr(value, of, None), Tensor)
            remedy = f"give its .{of}" if held else "give tensors, for instance torch.as_tensor(array)"
            raise DomainError(f"it compares tensors, got a {type(value).__name__}", where=where, remedy=remedy)


def _same_shape(reconstruction: Tensor, truth: Tensor, where: str) -> None:
    refuse_others(where, reconstruction, truth)
    if reconstruction.shape != truth.shape:
        raise DomainError(
            f"reconstruction {list(reconstruction.shape)} and truth {list(truth.shape)} differ in shape",
            where=where,
            remedy="give one reconstruction per record, in the record's shape",
        )


def _last(axes: int) -> tuple[int, ...]:
    return tuple(range(-axes, 0))


def _blur(images: Tensor) -> Tensor:
    """Weighted means under every window that fits: a matrix from the left and one from the right."""
    height, width = (_windows(size).to(images) for size in images.shape[-2:])
    return height @ images @ width.T


@cache
def _windows(size: int) -> Tensor:
    weights = torch.tensor([exp(-(((k - WINDOW // 2) / SIGMA) ** 2) / 2) for k in range(WINDOW)], dtype=torch.float64)
    rows = torch.zeros(size - WINDOW + 1, size, dtype=torch.float64)
    for start in range(len(rows)):
        rows[start, start : start + WINDOW] = weights / weights.sum()
    return rows
