"""The algebra of one linear layer with a bias: what a batch leaves in its gradient, and what follows it.

For ``Z = X Wᵀ + c`` with X ``[B, n]``, ``∂ℓ/∂W = Δᵀ X`` and ``∂ℓ/∂c = Δᵀ 1``, where row i of Δ ``[B, m]`` is
``δ_i = κ ∂ℓ_i/∂z``. ReLU makes ``δ_ij`` zero wherever ``z_ij ≤ 0``: that sparsity is what exact recovery lives on.
The factor κ > 0 is whatever multiplied the whole update (a mean over the batch, a rate, clipping).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakgauge.models.normalise import Normalise
from leakgauge.task import Task, embeddings
from leakgauge.types import Tree


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer on vectors, in the order of the forward pass; ``raw`` where it takes the record itself."""

    name: str
    module: nn.Linear
    raw: bool

    def parameter(self, what: str) -> str:
        return f"{self.name}.{what}" if self.name else what

    def trained(self, task: Task, what: str) -> bool:
        return self.parameter(what) in task.params


def drawn_inputs(task: Task, number: int) -> Tensor:
    """Inputs without any record: random numbers, or random tokens that every embedding knows."""
    first, generator = next(iter(task.params.values())), torch.Generator().manual_seed(0)
    shape = (number, *task.domain.shape)
    if task.domain.kind != "tokens":
        return torch.rand(shape, dtype=first.dtype, generator=generator).to(first.device)
    rows = [layer.num_embeddings for layer in embeddings(task.working).values()]
    return torch.randint(min(rows, default=1), shape, generator=generator).to(first.device)


def linear_layers(task: Task) -> list[LinearLayer]:
    """The linear layers as one forward pass meets them; one that is called twice is listed twice."""
    probe = drawn_inputs(task, 2)
    model, layers, stated = task.fresh(), list[LinearLayer](), normalised_by(task, probe).flatten(1)

    def note(module: nn.Module, args: tuple[Tensor, ...], name: str) -> None:
        inputs = args[0].detach()
        raw = inputs.shape == stated.shape and bool(torch.equal(inputs, stated))
        assert isinstance(module, nn.Linear)
        layers.append(LinearLayer(name, module, raw))

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda module, args, name=name: note(module, args, name))
    with torch.no_grad():
        model(probe)
    return layers


def normalised_by(task: Task, inputs: Tensor) -> Tensor:
    """What the model's own normalisation makes of its inputs: it is public, and hides nothing."""
    for hook in task.working._forward_pre_hooks.values():
        if isinstance(hook, Normalise):
            (inputs,) = hook(task.working, (inputs,))
    return inputs


@dataclass(frozen=True)
class Precision:
    """What rounding allows: ``eps`` of the number format, ``tolerance`` of a certificate, ``loose`` of a worn row,
    ``tight`` of a certificate for several equal records."""

    eps: float
    tolerance: float
    loose: float
    tight: float

    @classmethod
    def of(cls, *dtypes: torch.dtype) -> Precision:
        """That of the coarsest format: half its digits certify, and a row may lose all but a fifth of them."""
        eps = max(torch.finfo(dtype).eps for dtype in dtypes)
        return cls(eps, eps**0.5, eps**0.3, eps**0.7)

    def rounding(self, size: Tensor) -> Tensor:
        """How far terms of this total size may be off: derivatives lose a few dozen roundings on their way."""
        return 100 * self.eps * size


@dataclass(frozen=True)
class LayerGradient:
    """The gradient of one layer, in float64: ``weight [m, n]``, ``bias [m]``; ``worn [m]`` sums what was subtracted,
    and ``most`` is how many examples are in it."""

    weight: Tensor
    bias: Tensor
    worn: Tensor
    precision: Precision
    most: int

    @classmethod
    def of(cls, gradient: Tree, layer: LinearLayer, precision: Precision, most: int) -> LayerGradient:
        bias = gradient[layer.parameter("bias")].double()
        return cls(gradient[layer.parameter("weight")].double(), bias, torch.zeros_like(bias), precision, most)

    def without(self, inputs: Tensor, deltas: Tensor) -> LayerGradient:
        """What is left without examples of inputs ``[k, n]`` and derivatives ``[k, m]``."""
        return LayerGradient(
            self.weight - deltas.T @ inputs,
            self.bias - deltas.sum(0),
            self.worn + deltas.abs().sum(0),
            self.precision,
            self.most - len(inputs),
        )

    @property
    def live(self) -> Tensor:
        """The rows, ``[m]``, that hold more than what rounding left there."""
        return self.bias.abs() > self.precision.rounding(self.worn) / self.precision.loose

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Left vectors ``[m, r]``, singular values ``[r]``, right vectors ``[r, n]``, without those of rounding."""
        left, values, right = torch.linalg.svd(self.weight, full_matrices=False)
        noise = 0.3 * max(self.weight.shape) * self.precision.eps * (self.worn.norm() * self.scale + values[0])
        rank = int((values > noise).sum())
        if rank > self.most and float(values[self.most]) < self.precision.loose * float(values[0]):
            rank = self.most  # the rest is rounding that the estimate of the noise fell short of
        return left[:, :rank], values[:rank], right[:rank]

    @cached_property
    def scale(self) -> Tensor:
        """A typical size of inputs: ``‖∂W‖ / ‖∂c‖``."""
        tiny = torch.finfo(torch.float64).tiny
        size: Tensor = self.weight.norm() / self.bias.norm().clamp(min=tiny)
        return size

    @property
    def rank(self) -> int:
        return len(self.factors[1])


@dataclass(frozen=True)
class Tail:
    """A network from one linear layer on, at given parameters, in float64."""

    task: Task
    state: Tree
    layer: LinearLayer

    @classmethod
    def of(cls, task: Task, params: Tree, buffers: Tree, layer: LinearLayer) -> Tail:
        state = {**task.buffers, **buffers, **params}
        double = {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
        return cls(task, double, layer)

    @property
    def weight(self) -> Tensor:
        return self.state[self.layer.parameter("weight")]

    @property
    def bias(self) -> Tensor:
        return self.state[self.layer.parameter("bias")]

    def before(self, inputs: Tensor) -> Tensor:
        """``z = W x + c`` of inputs ``[k, n]``."""
        return inputs @ self.weight.T + self.bias

    def outputs(self, before: Tensor) -> Tensor:
        """What the network makes of ``z [k, m]``; layers before this one are passed by."""
        handle = self._model.get_submodule(self.layer.name).register_forward_hook(lambda *_: before)
        probe = before.new_zeros(len(before), *self.task.domain.shape)
        try:
            outputs: Tensor = functional_call(self._model, dict(self.state), (probe,))
        finally:
            handle.remove()
        return outputs

    def deltas(self, inputs: Tensor, labels: Tensor) -> Iterator[Tensor]:
        """``∂ℓ/∂z`` of inputs ``[k, n]`` under one label after the other, ``[k, m]`` each."""
        loss = self.task.working_recipe.loss
        with torch.enable_grad():
            before = self.before(inputs).detach().requires_grad_()
            outputs = self.outputs(before)
            for label in labels:
                losses = loss(outputs, label.expand(len(inputs), *label.shape))
                yield torch.autograd.grad(losses.sum(), before, retain_graph=True)[0]

    def meets_relu(self) -> bool:
        """Whether derivatives vanish exactly where ``z ≤ 0`` and nowhere else, on a few random ``z``.

        One that switches all units of a later layer off says nothing.
        """
        generator = torch.Generator().manual_seed(0)
        before = torch.randn(8, len(self.bias), generator=generator, dtype=torch.float64).to(self.bias.device)
        before.requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.outputs(before)[:, 0].sum(), before)
        active = slope != 0
        told = active.any(1)
        return bool(told.any()) and bool((active == (before > 0))[told].double().mean() > 0.99)

    @cached_property
    def _model(self) -> nn.Module:
        return self.task.fresh()
