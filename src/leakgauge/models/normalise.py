"""Normalisation inside the model, so that images stay in [0, 1] outside it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.errors import ModelError


@dataclass(frozen=True)
class Normalise:
    """A forward pre-hook: ``x ↦ (x − mean) / std``, per channel.

    It is a hook and not a wrapping module, because a wrapper would rename every parameter, and updates are
    compared by name. It contains plain numbers: no parameter, no buffer, nothing in the state dict. Copies
    of the model keep it, and ``torch.func.functional_call`` runs it.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise ModelError(
                f"got {len(self.mean)} means but {len(self.std)} standard deviations",
                where="normalise",
                remedy="give one of each per channel",
            )
        if not all(math.isfinite(m) for m in self.mean) or not all(s > 0 and math.isfinite(s) for s in self.std):
            raise ModelError(
                f"got mean {self.mean} and std {self.std}",
                where="normalise",
                remedy="give finite means and standard deviations above 0",
            )

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs: Tensor = args[0]
        if inputs.dim() < 3 or inputs.shape[-3] != len(self.mean):
            # without this check one channel would silently broadcast to three
            raise ModelError(
                f"inputs of shape {tuple(inputs.shape)} do not have {len(self.mean)} channels",
                where="normalise",
                remedy="give one mean and one standard deviation per channel",
            )
        mean, std = (torch.tensor(v, dtype=inputs.dtype, device=inputs.device) for v in (self.mean, self.std))
        return ((inputs - mean.view(-1, 1, 1)) / std.view(-1, 1, 1), *args[1:])

    def inverse(self, inputs: Tensor) -> Tensor:
        """``z ↦ z · std + mean``, per channel."""
        mean, std = (torch.tensor(v, dtype=inputs.dtype, device=inputs.device) for v in (self.mean, self.std))
        return inputs * std.view(-1, 1, 1) + mean.view(-1, 1, 1)


def denormalised(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's input, recovered from the input after the model's own normalisation, or that of a model in it."""
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    for hook in reversed(hooks):
        inputs = hook.inverse(inputs) if isinstance(hook, Normalise) else inputs
    return inputs


def normalised(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """A copy of ``model`` that takes images in [0, 1] and normalises them first; parameter names stay the same.

    The user's own model is not changed. Normalising twice composes: the outer one comes first.
    """
    copied = copy.deepcopy(model)
    copied.register_forward_pre_hook(Normalise(tuple(map(float, mean)), tuple(map(float, std))), prepend=True)
    return copied
