"""The fifty operations of ATS on images in [0, 1]: what they do, and what of it can be undone.

Each has a name and a magnitude index m in 0..9, spread over its range. Where the published list has a random sign, it
comes in as an argument; the listed probabilities are ignored there, and so here: an operation always acts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

LEVELS = 255
GREY_FILL = 128 / LEVELS
RANGES = {
    "shear_y": (0.0, 0.3),
    "translate_x": (0.0, 150 / 331),
    "translate_y": (0.0, 150 / 331),
    "rotate": (0.0, 30.0),
    "color": (0.0, 0.5),
    "contrast": (0.0, 0.5),
    "sharpness": (0.0, 0.5),
    "brightness": (0.0, 0.5),
    "posterize": (8.0, 4.0),
    "solarize": (256.0, 0.0),
}
SIGNED = frozenset({"shear_y", "translate_x", "translate_y", "color", "contrast", "sharpness", "brightness"})


@dataclass(frozen=True)
class Operation:
    """One entry of the list: a name, and how strong."""

    name: str
    magnitude: float = 0.0

    @property
    def signed(self) -> bool:
        """Whether a random sign decides its direction."""
        return self.name in SIGNED

    def __call__(self, x: Tensor, sign: int = 1) -> Tensor:
        """The operation on one image ``[C, H, W]``."""
        return _FORWARD[self.name](x, sign * self.magnitude).clamp(0, 1)

    def undo(self, x: Tensor, sign: int = 1) -> Tensor | None:
        """What can be had back: None where the operation throws away what would be needed."""
        inverse = _BACKWARD.get(self.name)
        return None if inverse is None else inverse(x, sign * self.magnitude).clamp(0, 1)


def _invert(x: Tensor, _: float) -> Tensor:
    return 1 - x


def _mean_grey(x: Tensor) -> Tensor:
    """The grey value of every pixel; of a single channel, itself."""
    if x.shape[0] != 3:
        return x.mean(0, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype).view(3, 1, 1)
    return (weights * x).sum(0, keepdim=True)


def _contrast(x: Tensor, m: float) -> Tensor:
    mean = _mean_grey(x).mean()
    return mean + (1 + m) * (x - mean)


def _brightness(x: Tensor, m: float) -> Tensor:
    return (1 + m) * x


def _color(x: Tensor, m: float) -> Tensor:
    grey = _mean_grey(x)
    return grey + (1 + m) * (x - grey)


def _smooth(x: Tensor) -> Tensor:
    """A 3x3 window, its middle counting five times; the border keeps its values."""
    kernel = torch.ones(1, 1, 3, 3, dtype=x.dtype)
    kernel[..., 1, 1] = 5
    inner = conv2d(x.unsqueeze(1), kernel / 13).squeeze(1)
    smoothed = x.clone()
    smoothed[:, 1:-1, 1:-1] = inner
    return smoothed


def _sharpness(x: Tensor, m: float) -> Tensor:
    smooth = _smooth(x)
    return smooth + (1 + m) * (x - smooth)


def _less_sharp(x: Tensor, m: float) -> Tensor:
    """Solves ``f x − (f − 1) S x = x̃`` by fixed-point steps; S averages, so they converge."""
    f, estimate = 1 + m, x
    for _ in range(50):
        estimate = (x + (f - 1) * _smooth(estimate)) / f if f >= 1 else x + (1 - f) * (estimate - _smooth(estimate))
    return estimate


def _divided(forward: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, float], Tensor]:
    """Blending with a value that the blend itself keeps is undone by the reciprocal factor."""
    return lambda x, m: forward(x, 1 / (1 + m) - 1)


def _posterize(x: Tensor, m: float) -> Tensor:
    step = float(2 ** (8 - round(m)))
    return (x * LEVELS).round().div(step).floor() * step / LEVELS


def _solarize(x: Tensor, m: float) -> Tensor:
    return torch.where((x * LEVELS).round() < m, x, 1 - x)


def _autocontrast(x: Tensor, _: float) -> Tensor:
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1 / LEVELS), x)


def _equalize(x: Tensor, _: float) -> Tensor:
    """Histogram equalisation, channel by channel: level v becomes the share of pixels below it, plus half a step."""
    channels = []
    for channel in (x * LEVELS).round().long():
        counts = torch.bincount(channel.flatten(), minlength=LEVELS + 1)
        step = (counts.sum() - counts[counts.nonzero()[-1]].squeeze()) // LEVELS
        if int(step) == 0:
            channels.append(channel)
            continue
        below = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)[:-1]])
        channels.append(((below + step // 2) // step).clamp(max=LEVELS)[channel])
    return torch.stack(channels).to(x) / LEVELS


def _warped(x: Tensor, theta: list[list[float]], fill: float = 0.0) -> Tensor:
    grid = affine_grid(torch.tensor([theta], dtype=x.dtype), [1, *x.shape], align_corners=False)
    moved = grid_sample((x - fill).unsqueeze(0), grid, align_corners=False)
    return moved.squeeze(0) + fill


def _translated(x: Tensor, right: int, down: int) -> Tensor:
    """Shift by whole pixels; black comes in."""
    height, width = x.shape[-2:]
    padded = pad(x, (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0)))
    top, left = max(-down, 0), max(-right, 0)
    return padded[..., top : top + height, left : left + width]


def _translate_x(x: Tensor, m: float) -> Tensor:
    return _translated(x, -math.trunc(m * x.shape[-1]), 0)


def _translate_y(x: Tensor, m: float) -> Tensor:
    return _translated(x, 0, -math.trunc(m * x.shape[-2]))


def _shear_y(x: Tensor, m: float) -> Tensor:
    return _warped(x, [[1.0, 0.0, 0.0], [m, 1.0, 0.0]])


def _rotate(x: Tensor, m: float) -> Tensor:
    angle = math.radians(m)
    cos, sin = math.cos(angle), math.sin(angle)
    return _warped(x, [[cos, -sin, 0.0], [sin, cos, 0.0]], GREY_FILL)


def _back(forward: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, float], Tensor]:
    return lambda x, m: forward(x, -m)


_FORWARD: dict[str, Callable[[Tensor, float], Tensor]] = {
    "invert": _invert,
    "contrast": _contrast,
    "rotate": _rotate,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "shear_y": _shear_y,
    "sharpness": _sharpness,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "posterize": _posterize,
    "solarize": _solarize,
    "color": _color,
    "brightness": _brightness,
}
_BACKWARD: dict[str, Callable[[Tensor, float], Tensor]] = {
    "invert": _invert,
    "contrast": _divided(_contrast),
    "color": _divided(_color),
    "brightness": _divided(_brightness),
    "sharpness": _less_sharp,
    "rotate": _back(_rotate),
    "shear_y": _back(_shear_y),
    "translate_x": _back(_translate_x),
    "translate_y": _back(_translate_y),
}

_LIST = """
invert contrast6 rotate2 translate_x9 sharpness1 sharpness3 shear_y2 translate_y2 autocontrast equalize
shear_y5 posterize5 color3 brightness5 sharpness9 brightness9 equalize equalize contrast7 sharpness5
color5 translate_x5 equalize autocontrast translate_y3 sharpness6 brightness6 color8 solarize0 invert
equalize autocontrast equalize equalize color5 equalize autocontrast solarize4 brightness3 color0
solarize1 autocontrast translate_y3 translate_y3 autocontrast solarize1 equalize invert translate_y3 autocontrast
"""


def _operation(text: str) -> Operation:
    name, index = (text[:-1], int(text[-1])) if text[-1].isdigit() else (text, None)
    if index is None:
        return Operation(name)
    low, high = RANGES[name]
    return Operation(name, low + (high - low) * index / 9)


OPERATIONS: tuple[Operation, ...] = tuple(_operation(text) for text in _LIST.split())
"""The published list, by index."""
