"""Pairs of pictures that every machine computes alike: integers and sines, no random generator, no file."""

from __future__ import annotations

import torch
from torch import Tensor


def picture(height: int, width: int, phase: int) -> Tensor:
    """A smooth colour picture ``[3, H, W]`` in [0, 1]."""
    rows = torch.arange(height, dtype=torch.float64)[:, None]
    columns = torch.arange(width, dtype=torch.float64)[None]
    waves = [torch.sin((0.11 + 0.05 * c) * rows + 0.07 * (phase + c) * columns + phase) for c in range(3)]
    return 0.5 + 0.5 * torch.stack(waves)


def noise(height: int, width: int) -> Tensor:
    """Numbers in [0, 1) from a linear congruence, ``[3, H, W]``."""
    numbers = torch.arange(3 * height * width, dtype=torch.int64)
    return ((numbers * 1103515245 + 12345) * 69069 % 2**31).double().view(3, height, width) / 2**31


def pairs() -> list[tuple[Tensor, Tensor]]:
    """Seven pairs: shifted, noisy, blurred, inverted, grey, another picture, noise against noise; two sizes."""
    square, oblong = picture(64, 64, 1), picture(48, 80, 2)
    blurred = torch.nn.functional.avg_pool2d(square[None], 5, 1, 2, count_include_pad=False)[0]
    return [
        (square, square.roll(3, 2)),
        (square, 0.7 * square + 0.3 * noise(64, 64)),
        (square, blurred),
        (square, 1 - square),
        (oblong, torch.full_like(oblong, 0.5)),
        (oblong, picture(48, 80, 5)),
        (noise(64, 64), noise(64, 64).flip(1)),
    ]


# What version 0.1.4 of the package `lpips` returns for these pairs (its own forward pass and heads, normalize=True,
# float64). It takes its networks from torchvision, which the machine had not: AlexNet and VGG16 were built beside it
# layer by layer as torchvision has them, and filled with the ImageNet weights of the package that `leakgauge data fetch
# lpips` gets; its heads are bit-equal to the official ones. So the goldens check our forward pass, not those weights.
LPIPS_GOLDEN = {
    "alex": (0.0356929, 0.07490574, 0.00065442, 0.23414439, 0.9096304, 0.18365545, 0.2181423),
    "vgg": (0.18493266, 0.2522879, 0.01641977, 0.79605121, 0.95583391, 0.47783597, 0.41528398),
}
