"""ResNet-18 for small images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.expr import register
from leakgauge.models.base import Network, sequence
from leakgauge.types import Domain


class Block(nn.Module):
    """``relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))``, where the shortcut is 1x1 if the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = sequence(
                ("conv", nn.Conv2d(before, after, 1, stride=stride, bias=False)), ("bn", nn.BatchNorm2d(after))
            )
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu1(self.bn1(self.conv1(x)))
        out: Tensor = self.relu2(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return out


@register("model", "resnet18")
@dataclass(frozen=True, repr=False)
class ResNet18(Network):
    """ResNet-18 as used on CIFAR: a 3x3 stem without pooling, 64 to 512 channels, mean, linear.

    11,173,962 parameters on 3x32x32 with ten classes; GradAttack's network. Torch's default
    initialisation. Images of at least 9x9: the last stage then has 2x2 positions, so that batch norm has
    statistics in train mode even for a batch of one.

    References:
        He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition, 2016 (there with a stem for
        large images). https://arxiv.org/abs/1512.03385
    """

    smallest: ClassVar[int] = 9

    def network(self, domain: Domain) -> nn.Module:
        channels, _, _ = self.images(domain)
        layers: list[tuple[str, nn.Module]] = [
            ("conv", nn.Conv2d(channels, 64, 3, padding=1, bias=False)),
            ("bn", nn.BatchNorm2d(64)),
            ("relu", nn.ReLU()),
        ]
        before = 64
        for i, after in enumerate((64, 128, 256, 512), start=1):
            layers += [(f"block{i}a", Block(before, after, 1 if i == 1 else 2)), (f"block{i}b", Block(after, after, 1))]
            before = after
        return sequence(
            *layers,
            ("pool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("linear", nn.Linear(before, domain.classes)),
        )
