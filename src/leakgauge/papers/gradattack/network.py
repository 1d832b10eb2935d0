"""A small network with batch norm, where a ResNet-18 is too large for two cores."""

from __future__ import annotations

from torch import nn

from leakgauge.types import Domain


def conv_net(domain: Domain, *, width: int = 16, norm: bool = True) -> nn.Module:
    """Three 3x3 convolutions of ``width``, twice that and twice that, the last two with stride 2, with ReLU and, with
    ``norm``, batch norm after each; then the classes. Images of at least 4x4."""
    channels, height, wide = domain.shape
    layers: list[nn.Module] = []
    before = channels
    for after, stride in ((width, 1), (2 * width, 2), (2 * width, 2)):
        layers += [nn.Conv2d(before, after, 3, stride=stride, padding=1)]
        layers += [nn.BatchNorm2d(after), nn.ReLU()] if norm else [nn.ReLU()]
        before = after
    places = -(-height // 4) * -(-wide // 4)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * places, domain.classes))
