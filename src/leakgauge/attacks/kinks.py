"""Kinks of a network, at which a line search ends."""

from __future__ import annotations

from torch import nn

from leakgauge.task import Task

KINKED = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.PReLU,
    nn.RReLU,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Threshold,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
)
SMOOTH = (nn.Sigmoid, nn.Tanh, nn.Softplus, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish)


def has_no_kinks(task: Task) -> bool:
    """Whether the modules show that the network is smooth; activations that are functions do not show."""
    modules = list(task.working.modules())
    return any(isinstance(one, SMOOTH) for one in modules) and not any(isinstance(one, KINKED) for one in modules)
