"""The base of every network: a frozen value that builds a module for a domain."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.errors import ModelError, brief
from leakgauge.expr import Part
from leakgauge.types import Domain


@dataclass(frozen=True, repr=False)
class Network(Part):
    """A network's architecture and initialisation, without weights; ``network(domain)`` creates the module.

    Inputs are records of the domain, images in [0, 1]; outputs are logits ``[B, classes]``. No
    operation works in place, so the update can be differentiated twice. ``smallest`` is the smallest
    height and width of an image, 0 for networks that take any shape.
    """

    smallest: ClassVar[int] = 0

    def network(self, domain: Domain) -> nn.Module:
        """The module, with fresh weights from the global generator (``build`` fixes the seed)."""
        raise ModelError("is abstract", where=repr(self), remedy="write a subclass with network()")

    def images(self, domain: Domain) -> tuple[int, int, int]:
        """Channels, height and width of the domain, whose images must be large enough."""
        if domain.kind != "image" or len(domain.shape) != 3:
            raise ModelError(
                f"takes images, not {domain.kind} records of shape {domain.shape}",
                where=repr(self),
                remedy="use mlp() or logistic()",
            )
        channels, height, width = domain.shape
        if min(height, width) < self.smallest:
            raise ModelError(
                f"images of {height}x{width} are too small",
                where=repr(self),
                remedy=f"use images of at least {self.smallest}x{self.smallest}, or mlp()",
            )
        return channels, height, width


def sequence(*layers: tuple[str, nn.Module]) -> nn.Sequential:
    """Layers one after the other, each under its own name in the state dict."""
    names = [name for name, _ in layers]
    if len(set(names)) != len(names):
        # an OrderedDict would silently drop a layer, as happened to conv6 of a published ConvNet
        raise ModelError(
            f"two layers share a name in {names}", where="sequence", remedy="give every layer its own name"
        )
    return nn.Sequential(OrderedDict(layers))


MOST = 1_000_000_000
"""The largest size of a layer: beyond this no tensor can be counted in 64 bits."""


def at_least(part: Part, **sizes: int) -> None:
    """Check that every named size is a whole number from 1 to :data:`MOST`; a ModelError names the one that is not."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ModelError(
                f"{name} is {size!r}", where=repr(part), remedy=f"{name} must be a whole number, at least 1"
            )
        if size > MOST:
            raise ModelError(
                f"{name} is {brief(str(size), 30)}", where=brief(repr(part)), remedy=f"give at most {MOST}"
            )
