"""Linear maps of the ghost path against torch's own layers, to the second derivative."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from leakgauge.updates import linear_maps
from leakgauge.updates.linear_maps import Window, average_pool, convolution

CONVOLUTIONS = {
    "few channels": nn.Conv2d(3, 5, 3, padding=1),
    "few channels, no bias": nn.Conv2d(2, 4, 5, stride=2, padding=2, bias=False),
    "many channels": nn.Conv2d(8, 5, 3, padding=1),
    "one pixel": nn.Conv2d(9, 5, 1, padding=1),
    "strides that leave a rest": nn.Conv2d(8, 4, 3, stride=2, bias=False),
    "nothing square": nn.Conv2d(8, 4, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2)),
    "dilated, few channels": nn.Conv2d(1, 4, 3, padding=2, dilation=2),
}
POOLS = {
    "tiles": nn.AvgPool2d(2),
    "oblong tiles": nn.AvgPool2d((3, 2)),
    "overlapping": nn.AvgPool2d(3, stride=2),
    "padded": nn.AvgPool2d(2, padding=1),
    "a rest": nn.AvgPool2d(5),
    "own divisor": nn.AvgPool2d(2, divisor_override=3),
}


def agree(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], channels: int) -> None:
    """Value, gradient and second derivative of a non-linear function of the map."""
    x = torch.randn(2, channels, 12, 18, dtype=torch.float64)

    def derivatives(fn: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        live = x.clone().requires_grad_()
        out = fn(live)
        (slope,) = torch.autograd.grad(out.sin().sum(), live, create_graph=True)
        (second,) = torch.autograd.grad(slope.pow(3).sum(), live)
        return out.detach(), slope.detach(), second

    for found, wanted in zip(derivatives(ours), derivatives(theirs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("narrow", [0, 100])
def test_a_convolution_is_torchs_and_its_patches_are_unfold(
    name: str, narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_maps, "NARROW", narrow)  # both ways of folding, whatever the width
    module = CONVOLUTIONS[name].double().requires_grad_(False)
    agree(lambda x: convolution(module, x)[0], module, module.in_channels)
    how = {key: getattr(module, key) for key in ("dilation", "padding", "stride")}
    agree(
        lambda x: convolution(module, x)[1],
        lambda x: nn.functional.unfold(x, module.kernel_size, **how),
        module.in_channels,
    )


@pytest.mark.parametrize("name", POOLS)
def test_an_average_pool_is_torchs(name: str) -> None:
    agree(lambda x: average_pool(POOLS[name], x), POOLS[name], 3)


def test_patches_of_images_in_another_memory_order() -> None:
    module = CONVOLUTIONS["many channels"].double().requires_grad_(False)
    x = torch.randn(2, 8, 6, 7, dtype=torch.float64).to(memory_format=torch.channels_last)
    found = Window.of(module, x.shape).patches(x)
    torch.testing.assert_close(found, nn.functional.unfold(x, 3, padding=1))
