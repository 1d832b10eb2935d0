"""The paper's own sizes, and a small network with batch norm where a ResNet-18 is too large for two cores."""

from __future__ import annotations

from typing import Any

from torch import nn

from leakgauge.types import Domain

FULL: dict[str, Any] = {"network": "resnet18", "steps": 10_000, "training": 3900, "rounds": 20}
FULL_LESS = ("3,900 training steps (ten epochs) instead of 200 epochs, without the defense",)
"""The paper's attack, and what is less about it."""
THREE, FIVE = ((1, 1), (2, 2), (2, 2)), ((1, 1), (1, 1), (2, 2), (2, 1), (2, 2))
"""Convolutions, by the multiple of the width that they have and by their stride."""


def conv_net(
    domain: Domain, *, width: int = 16, norm: bool = True, layers: tuple[tuple[int, int], ...] = THREE
) -> nn.Module:
    """3x3 convolutions with ReLU and, with ``norm``, batch norm after each; then the classes. Two have stride 2: images
    are at least 4x4."""
    channels, height, wide = domain.shape
    stack: list[nn.Module] = []
    before = channels
    for after, stride in ((multiple * width, stride) for multiple, stride in layers):
        stack += [nn.Conv2d(before, after, 3, stride=stride, padding=1)]
        stack += [nn.BatchNorm2d(after), nn.ReLU()] if norm else [nn.ReLU()]
        before = after
    places = -(-height // 4) * -(-wide // 4)
    return nn.Sequential(*stack, nn.Flatten(), nn.Linear(before * places, domain.classes))
