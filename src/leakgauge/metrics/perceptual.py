"""LPIPS: how different two pictures look, by the features of a network that was trained on photographs.

``d(x, y) = Σ_l (1/H_l W_l) Σ_hw Σ_c w_lc (x̂_lhwc − ŷ_lhwc)²``, where ``x̂_l`` are the features of layer l, of length 1
at every position, and the weights ``w ≥ 0`` were fitted to what people call alike. So it is a squared distance between
two vectors, each of one picture: ``d(x, y) = ‖φ(x) − φ(y)‖²``, and that is how it is computed, in float64.

References:
    Zhang et al., The Unreasonable Effectiveness of Deep Features as a Perceptual Metric, 2018 (version 0.1 of the
    released heads). https://arxiv.org/abs/1801.03924
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.metrics.images import comparable, paired
from leakgauge.storage.lpips import Net, read_lpips


@dataclass(frozen=True)
class Step:
    """A convolution with ReLU, whose output a head may look at, or a pool (``padding`` None, ``size`` its window)."""

    stride: int = 1
    padding: int | None = 1
    looked_at: bool = False
    size: int = 0


def _block(convolutions: int) -> tuple[Step, ...]:
    return (*[Step()] * (convolutions - 1), Step(looked_at=True))


_POOL_3, _POOL_2 = Step(2, None, size=3), Step(2, None, size=2)
STEPS: dict[Net, tuple[Step, ...]] = {
    "alex": (Step(4, 2, True), _POOL_3, Step(1, 2, True), _POOL_3, *[Step(looked_at=True)] * 3),
    "vgg": (*_block(2), _POOL_2, *_block(2), _POOL_2, *_block(3), _POOL_2, *_block(3), _POOL_2, *_block(3)),
}
"""The networks up to the last layer that a head looks at."""
LEAST: dict[Net, int] = {"alex": 31, "vgg": 16}
"""The smallest side of a picture of which the last layer still has a position."""
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""Mean and deviation of photographs with pixels in [−1, 1], as the released code has them."""
TOGETHER = 8
"""Pictures that go through the network at once."""


def lpips(reconstruction: Tensor, truth: Tensor, *, net: Net = "alex") -> Tensor:
    """The LPIPS distance of each pair of pictures ``[..., 1 or 3, H, W]``: 0 is the same, about 1 is unrelated.

    Pixels lie in [0, 1], reconstructions are clipped, a grey picture is three equal colours. The pictures are compared
    at the size they have: AlexNet needs 31 × 31 pixels, VGG 16 × 16. The weights are fetched on request, never by
    this function.
    """
    x, y = comparable(reconstruction, truth, where="lpips")
    shape = x.shape[:-3]
    x, y = x.flatten(0, -4) if shape else x[None], y.flatten(0, -4) if shape else y[None]
    blocks = zip(_embedded(x, net), _embedded(y, net), strict=True)
    scores = [(a - b).square().sum(1) for a, b in blocks]
    return (torch.cat(scores) if scores else x.new_zeros(0)).view(shape)


def pairwise_lpips(reconstructions: Tensor, truths: Tensor, *, net: Net = "alex") -> Tensor:
    """:func:`lpips` of every reconstruction with every truth, ``[m, n]``; each picture passes the network once."""
    x, y = paired(reconstructions, truths, "lpips")
    theirs = list(_embedded(y, net))
    rows = [torch.cat([_gaps(a, b) for b in theirs], 1) for a in _embedded(x, net) if theirs]
    return torch.cat(rows) if rows else x.new_zeros(len(x), len(y))


def _gaps(a: Tensor, b: Tensor) -> Tensor:
    # through differences: |a|² − 2ab + |b|² would cancel where pictures are nearly alike
    return torch.stack([(one - b).square().sum(1) for one in a])


def visible_to(net: Net, shape: Sequence[int]) -> None:
    """Refuse pictures that the network cannot look at."""
    guards.choice(net, "net", "lpips", LEAST)
    if shape[-3] not in (1, 3):
        raise DomainError(
            f"LPIPS looks at pictures with 1 or 3 channels, these have {shape[-3]}",
            where="lpips",
            remedy="use ssim or psnr",
        )
    if min(shape[-2:]) < LEAST[net]:
        smaller = [f"lpips(net='{other}')" for other, least in LEAST.items() if least <= min(shape[-2:])]
        raise DomainError(
            f"LPIPS with net = {net!r} needs pictures of at least {LEAST[net]} x {LEAST[net]} pixels, "
            f"got {tuple(shape[-2:])}",
            where="lpips",
            remedy=f"use {' or '.join(smaller or ['psnr'])}",
        )


@torch.no_grad()
def _embedded(pictures: Tensor, net: Net) -> Iterator[Tensor]:
    """φ of some pictures at a time, ``[n, entries]``."""
    if not len(pictures):
        return
    visible_to(net, pictures.shape)
    weights = _weights(net)
    shift, scale = (pictures.new_tensor(each).view(3, 1, 1) for each in (SHIFT, SCALE))
    for some in pictures.split(TOGETHER):
        layers = _features((2 * some.expand(-1, 3, -1, -1) - 1 - shift) / scale, net, weights)
        yield torch.cat([_scaled(layer, weights[f"head{i}"]) for i, layer in enumerate(layers)], 1)


def _features(x: Tensor, net: Net, weights: dict[str, Tensor]) -> list[Tensor]:
    layers, conv = [], 0
    for step in STEPS[net]:
        if step.padding is None:
            x = F.max_pool2d(x, step.size, step.stride)
            continue
        weight, bias = weights[f"conv{conv}.weight"], weights[f"conv{conv}.bias"]
        x, conv = F.conv2d(x, weight, bias, step.stride, step.padding).relu(), conv + 1
        if step.looked_at:
            layers.append(x)
    return layers


def _scaled(layer: Tensor, head: Tensor) -> Tensor:
    """Features of length 1 at every position, times the root of what a squared difference of them counts."""
    length = layer.square().sum(1, keepdim=True).sqrt() + 1e-10
    positions = layer.shape[2] * layer.shape[3]
    return ((layer / length) * (head / positions).sqrt().view(-1, 1, 1)).flatten(1)


@lru_cache(maxsize=2)
def _weights(net: Net) -> dict[str, Tensor]:
    return {name: value.double() for name, value in read_lpips(net).items()}
