"""Initialisations used in the papers that are not torch's defaults."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_TRUNCATED = 0.87962566103423978
"""The standard deviation of a standard normal truncated to [-2, 2]."""


@torch.no_grad()
def uniform(model: nn.Module, bound: float) -> nn.Module:
    """All weights and biases from U(-bound, bound), as DLG (0.5) and the Bayes framework (0.05) do."""
    for parameter in model.parameters():
        parameter.uniform_(-bound, bound)
    return model


@torch.no_grad()
def lecun_normal(model: nn.Module) -> nn.Module:
    """Kernels from a truncated normal of variance ``1 / fan_in``, biases zero: Flax's default.

    The normal is truncated at two standard deviations and widened so that its variance after truncation
    is ``1 / fan_in``. Torch's own default has variance ``1 / (3 fan_in)`` and random biases, hence different
    gradients and different scores under noise of a fixed size.

    References:
        LeCun, Bottou, Orr and Müller, Efficient BackProp, 1998.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            std = 1 / math.sqrt(module.weight[0].numel()) / _TRUNCATED
            _truncated_normal(module.weight, std)
            if module.bias is not None:
                module.bias.zero_()
    return model


def _truncated_normal(weight: Tensor, std: float) -> None:
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
