"""Linear maps with their adjoints: convolution, the patches it sees, average pooling.

The ghost path differentiates twice through every layer, but never with respect to weights. Autograd does not know that:
its double backward of a convolution computes a weight gradient that nobody asked for. A linear map needs no more
than itself and its adjoint, to any order. Some of torch's kernels are also slow on a processor (average pooling,
``unfold``, convolutions with few channels); what stands here computes the same with faster ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

Map = Callable[[Tensor], Tensor]
Pair = tuple[int, int]
FEW = 8
"""A convolution with fewer input channels is a product with its patches: torch's kernels want a vector of channels."""
NARROW = 8
"""Rows of fewer pixels are too short to be added one after the other."""


class _Linear(torch.autograd.Function):
    """``first(x)``: an affine map with derivative ``there``, whose adjoint is ``back``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Map, there: Map, back: Map) -> Tensor:
        ctx.maps = back, back, there
        return first(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        return _apply(slope, *ctx.maps), None, None, None


_apply: Callable[[Tensor, Map, Map, Map], Tensor] = _Linear.apply  # torch does not annotate it


def linear(x: Tensor, there: Map, back: Map, first: Map | None = None) -> Tensor:
    """``there(x)``, or ``first(x)`` if that adds a constant; differentiable to any order by its adjoint ``back``."""
    return _apply(x, first or there, there, back)


@dataclass(frozen=True)
class Window:
    """How a convolution looks at images of one shape."""

    shape: torch.Size
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @classmethod
    def of(cls, module: nn.Conv2d, shape: torch.Size) -> Window:
        pairs = module.kernel_size, module.stride, module.padding, module.dilation
        return cls(shape, *((int(pair[0]), int(pair[1])) for pair in pairs))

    @property
    def places(self) -> Pair:
        """Height and width of the output."""
        rows, columns = (
            (self.shape[2 + i] + 2 * self.padding[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i]
            + 1
            for i in (0, 1)
        )
        return rows, columns

    def patches(self, a: Tensor) -> Tensor:
        """What each output pixel sees, ``[N, C·kh·kw, places]``, as ``unfold`` orders it."""
        return linear(a, self._unfold, self._fold)

    def _unfold(self, a: Tensor) -> Tensor:
        (ph, pw), (sh, sw), (dh, dw) = self.padding, self.stride, self.dilation
        padded = functional.pad(a, (pw, pw, ph, ph)) if ph or pw else a
        n, c, y, x = padded.stride()
        size = *self.shape[:2], *self.kernel, *self.places
        return padded.as_strided(size, (n, c, y * dh, x * dw, y * sh, x * sw)).reshape(len(a), -1, size[4] * size[5])

    def _fold(self, columns: Tensor) -> Tensor:
        (ph, pw), (sh, sw), (dh, dw) = self.padding, self.stride, self.dilation
        n, c, height, width = self.shape
        if self.places[1] < NARROW:
            return functional.fold(columns, (height, width), self.kernel, self.dilation, self.padding, self.stride)
        windows = columns.reshape(n, c, *self.kernel, *self.places)
        out = columns.new_zeros(n, c, height + 2 * ph, width + 2 * pw)
        down, right = (stride * (places - 1) + 1 for stride, places in zip(self.stride, self.places, strict=True))
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                out[:, :, i * dh : i * dh + down : sh, j * dw : j * dw + right : sw] += windows[:, :, i, j]
        return out[:, :, ph : ph + height, pw : pw + width]


def convolution(module: nn.Conv2d, a: Tensor) -> tuple[Tensor, Tensor]:
    """The layer's output, and the patches of its input."""
    weight, bias, window = module.weight, module.bias, Window.of(module, a.shape)
    columns = window.patches(a)
    if module.in_channels < FEW:
        rows = weight.flatten(1).expand(len(a), -1, -1)
        flat = torch.bmm(rows, columns) if bias is None else torch.baddbmm(bias.view(-1, 1), rows, columns)
        return flat.unflatten(2, window.places), columns
    how = window.stride, window.padding, window.dilation
    output = linear(
        a,
        lambda x: functional.conv2d(x, weight, None, *how),
        lambda d: conv2d_input(window.shape, weight, d, *how),
        lambda x: functional.conv2d(x, weight, bias, *how),
    )
    return output, columns


def average_pool(module: nn.AvgPool2d, a: Tensor) -> Tensor:
    """The layer's output, by adding rows and columns where its windows tile the image."""
    kh, kw = _pair(module.kernel_size)
    tiles = (kh, kw) == _pair(module.stride) and _pair(module.padding) == (0, 0) and module.divisor_override is None
    if not tiles or a.dim() != 4 or a.shape[2] % kh or a.shape[3] % kw:
        return nn.AvgPool2d.forward(module, a)
    shape = a.shape
    # one row of means is spread over kh rows of the image
    spread = torch.eye(a.shape[3] // kw, dtype=a.dtype, device=a.device).repeat_interleave(kw, 1).repeat(1, kh)
    spread /= kh * kw

    def pool(x: Tensor) -> Tensor:
        rows = sum((x[..., i::kh, :] for i in range(1, kh)), start=x[..., ::kh, :])
        return sum((rows[..., j::kw] for j in range(1, kw)), start=rows[..., ::kw]) / (kh * kw)

    return linear(a, pool, lambda d: (d @ spread).view(shape))


def _pair(value: int | tuple[int, ...]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


__all__ = ["average_pool", "convolution"]
