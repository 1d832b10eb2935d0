"""The last layer: its tensors in an update, and what the model does on inputs that anybody can draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakgauge.errors import ModelError
from leakgauge.task import Task
from leakgauge.types import Domain, Tree

PROBES = 64
"""Inputs on which the size and spread of features are measured."""


def last_layer(params: Tree, classes: int) -> tuple[str, str | None]:
    """The names of the last linear layer's weight and of its bias, if it has one."""
    weights = [name for name, p in params.items() if p.dim() == 2 and p.shape[0] == classes]
    if not weights:
        raise ModelError(
            f"no linear layer with {classes} outputs to read labels from",
            where="labels",
            remedy='say labels="known" or labels="joint"',
        )
    bias = weights[-1].removesuffix("weight") + "bias"
    return weights[-1], bias if bias in params else None


@dataclass(frozen=True)
class LastLayer:
    """The last layer at one state of the model, in float64: ``weight [C, F]``, ``bias [C]`` (zeros where there is
    none), and ``features [probes, F]`` that it gets from drawn inputs; None where it is no module of its own."""

    names: tuple[str, str | None]
    weight: Tensor
    bias: Tensor
    features: Tensor | None

    @classmethod
    def of(cls, task: Task, params: Tree, buffers: Tree) -> LastLayer:
        names = last_layer(params, task.domain.classes)
        weight = params[names[0]].double()
        bias = weight.new_zeros(len(weight)) if names[1] is None else params[names[1]].double()
        return cls(names, weight, bias, _features(task, params, buffers, names[0].removesuffix("weight").rstrip(".")))


def _features(task: Task, params: Tree, buffers: Tree, layer: str) -> Tensor | None:
    module = dict(task.working.named_modules()).get(layer)
    if not isinstance(module, nn.Linear):
        return None
    captured: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, args: captured.append(args[0].detach()))
    try:
        with torch.no_grad():
            inputs = drawn_inputs(task.domain, PROBES).to(next(iter(params.values())))
            functional_call(task.working, ({**params}, {**task.buffers, **buffers}), (inputs,))
    finally:
        hook.remove()
    return captured[0].double() if len(captured) == 1 and captured[0].dim() == 2 else None


def drawn_inputs(domain: Domain, number: int) -> Tensor:
    """Inputs without any record: smooth images of random brightness, else standard normal numbers."""
    generator = torch.Generator().manual_seed(0)
    if domain.kind != "image" or len(domain.shape) != 3:
        return torch.randn(number, *domain.shape, generator=generator)
    coarse = torch.rand(number, domain.shape[0], 7, 7, generator=generator)
    brightness = torch.rand(number, 1, 1, 1, generator=generator)
    smooth: Tensor = nn.functional.interpolate(coarse, size=domain.shape[1:], mode="bilinear", align_corners=False)
    return smooth * brightness
