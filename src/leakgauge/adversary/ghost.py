"""The ghost path: the gradients of N clients from one batched pass, layer by layer, never formed.

One ordinary forward pass over all candidates, one backward pass to the layer outputs (``create_graph``), and
each layer's gradient is known by its factors: layer inputs a and output gradients d. Fits networks whose
parameters each sit once in Linear, Conv2d or a normalisation that keeps candidates apart: batch norms in train mode
measure the batch of each candidate by itself, and what they measured serves priors as well.

References:
    Goodfellow, Efficient Per-Example Gradient Computations, 2015. https://arxiv.org/abs/1510.01799
    Li et al., Large Language Models Can Be Strong Differentially Private Learners, 2022 (ghost norms).
    https://arxiv.org/abs/2110.05679
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakgauge import batch_norm
from leakgauge.adversary.paths import examples_of
from leakgauge.batch_norm import Measuring
from leakgauge.errors import PathError
from leakgauge.task import Task
from leakgauge.types import Candidate, Tree
from leakgauge.updates import Batch, Dense, Leaf, Sharing
from leakgauge.updates.factored import Factored, formed
from leakgauge.updates.linear_maps import average_pool, convolution

FORMED = 2**15
"""A tensor with fewer entries is formed: it costs little, and its residual then has no cancellation."""


Tape = list[tuple[str, nn.Module, Tensor, Tensor]]
"""Layers in the order of the forward pass: name, module, what it kept of its input, its output (or the slope there)."""


@dataclass(frozen=True)
class Ghost:
    """Updates by layer factors (see the module)."""

    task: Task
    params: Tree
    buffers: Tree
    model: nn.Module
    tape: Tape = field(repr=False)
    measured: dict[str, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)
    name: ClassVar[str] = "ghost"

    @classmethod
    def of(cls, task: Task, params: Tree, buffers: Tree) -> Ghost:
        model = task.fresh()
        tape: Tape = []
        for name, module in _trained(model):
            module.forward = _recorded(tape, name, module)
        for module in model.modules():
            if type(module) is nn.AvgPool2d:
                module.forward = partial(average_pool, module)  # type: ignore[method-assign]
        return cls(task, params, buffers, model, tape)

    def updates(self, candidate: Candidate, sharing: Sharing) -> Batch:
        inputs, labels = candidate.inputs, candidate.labels
        if not inputs.requires_grad:  # layer outputs need a graph even where nobody differentiates the inputs
            inputs = inputs.detach().requires_grad_()
        drawn = self.task.drawn(candidate.nuisances)
        hidden = {name: value.flatten(0, 1) for name, value in drawn.buffers.items()}
        hidden |= {name: value[:, 0] for name, value in drawn.statistics.items()}  # of the one step of a gradient
        tape = self._run(inputs.flatten(0, 1), labels.flatten(0, 1), inputs.shape[:2], hidden)
        self._note(inputs)
        leaves: dict[str, Leaf] = {}
        for name, module, layer_input, d in tape:
            for local, leaf in _RULES[type(module)](module, layer_input, d, len(inputs)).items():
                leaves[f"{name}.{local}" if name else local] = leaf
        unused = next((name for name in self.params if name not in leaves), None)
        if unused is not None:
            raise PathError(f"the layer of {unused!r} was not called", where="ghost path", remedy='use path="vmap"')
        batch = Batch({name: leaves[name] for name in self.params}, sharing)
        if drawn.rates is not None:  # a perturbed rate scales the gradient
            batch = batch.scaled(drawn.rates[:, 0] / self.task.recipe.learning_rate)
        return replace(batch, examples=examples_of(self, candidate, sharing))

    def _note(self, inputs: Tensor) -> None:
        """Keep what the batch norms measured, for whoever asks about these inputs next."""
        self.measured.clear()
        for name, layer in batch_norm.layers(self.model).items():
            if layer.last is not None:
                self.measured[name] = (inputs, *layer.last)
                layer.last = None

    def statistics(self, inputs: Tensor) -> dict[str, tuple[Tensor, Tensor]] | None:
        """Mean and variance ``[N, C]`` by batch norm, if the last pass was over these very inputs; once."""
        noted = dict(self.measured)
        self.measured.clear()
        if not noted or any(own is not inputs for own, *_ in noted.values()):
            return None
        return {name: (mean, variance) for name, (_, mean, variance) in noted.items()}

    def _run(self, inputs: Tensor, labels: Tensor, shape: torch.Size, hidden: Tree) -> Tape:
        """Every trained layer with what it kept of its input and the gradient at its output."""
        self.tape.clear()
        for norm in batch_norm.layers(self.model).values():
            norm.problems = shape[0]
        outputs = functional_call(self.model, ({**self.params}, {**self.buffers, **hidden}), (inputs,))
        losses = self.task.working_recipe.loss(outputs, labels)
        if losses.shape != inputs.shape[:1]:
            raise PathError(
                f"the loss returns {tuple(losses.shape)} for {len(inputs)} examples",
                where="ghost path",
                remedy='return one value per example, or use path="vmap"',
            )
        tape = list(self.tape)
        self.tape.clear()
        if len({name for name, *_ in tape}) != len(tape):
            raise PathError("a layer is used twice in one pass", where="ghost path", remedy='use path="vmap"')
        total = self.task.recipe.reduce(losses.unflatten(0, shape)).sum()
        slopes = torch.autograd.grad(total, [z for *_, z in tape], create_graph=True)
        return [(name, module, layer_input, d) for (name, module, layer_input, _), d in zip(tape, slopes, strict=True)]


def _recorded(tape: Tape, name: str, module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The layer's forward, which also puts down what its gradient needs: its input, or the patches of it."""
    plain = module.forward

    def forward(a: Tensor) -> Tensor:
        if isinstance(module, Measuring):
            layer_input = module.normalised(a)
            output = module.scaled(layer_input)
        else:
            output, layer_input = convolution(module, a) if isinstance(module, nn.Conv2d) else (plain(a), a)
        tape.append((name, module, layer_input, output))
        return output

    return forward


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            yield name, module


def unsupported(task: Task) -> str | None:
    """Why the ghost path does not fit, in a sentence; None if it does."""
    if task.recipe.shares != "gradient":
        return "weight changes after local training have no layer factors"
    if task.recipe.clients > 1:
        return "the mean over several clients is not that of one batch"
    for name, module in task.working.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and _uses_batch(module):
            if isinstance(module, Measuring):  # it reduces within a problem
                continue
            return f"layer {name!r} normalises over the batch, which couples its examples"
    owners: dict[int, str] = {}
    for name, module in _trained(task.working):
        if _RULES.get(type(module)) is None:
            return f"layer {name!r} is a {type(module).__name__}, which it does not know"
        reason = _unfit(module)
        if reason:
            return f"layer {name!r} {reason}"
        for parameter in module.parameters(recurse=False):
            if not parameter.requires_grad:
                return f"layer {name!r} is partly frozen"
            if id(parameter) in owners:
                return f"layers {owners[id(parameter)]!r} and {name!r} share a parameter"
            owners[id(parameter)] = name
    return None


def _uses_batch(module: nn.modules.batchnorm._BatchNorm) -> bool:
    return module.training or module.running_mean is None


def _unfit(module: nn.Module) -> str | None:
    if isinstance(module, nn.Conv2d):
        if module.groups != 1:
            return "is a grouped convolution"
        if module.padding_mode != "zeros" or isinstance(module.padding, str):
            return "pads with something else than a fixed number of zeros"
    return None


def _weight(a: Tensor, d: Tensor, shape: torch.Size) -> Leaf:
    """``Σ_r d_r a_rᵀ``: formed where that is small or smaller than its factors, else kept as factors."""
    positions, fan_in, fan_out = a.shape[1], a.shape[2], d.shape[2]
    whole = fan_in * fan_out
    if whole < FORMED or positions * (fan_in + fan_out) >= whole:
        return Dense(formed(a, d).reshape(-1, *shape))
    return Factored(a, d, shape)


def _linear(module: nn.Linear, a: Tensor, d: Tensor, n: int) -> dict[str, Leaf]:
    a, d = a.reshape(n, -1, a.shape[-1]), d.reshape(n, -1, d.shape[-1])
    leaves: dict[str, Leaf] = {"weight": _weight(a, d, module.weight.shape)}
    if module.bias is not None:
        leaves["bias"] = Dense(d.sum(1))
    return leaves


def _conv2d(module: nn.Conv2d, columns: Tensor, d: Tensor, n: int) -> dict[str, Leaf]:
    flat, shape = d.flatten(2), module.weight.shape
    leaves: dict[str, Leaf] = {"weight": _of_patches(columns.transpose(1, 2), flat.transpose(1, 2), n, shape)}
    if module.bias is not None:
        leaves["bias"] = Dense(flat.sum(2).unflatten(0, (n, -1)).sum(1))
    return leaves


def _of_patches(a: Tensor, d: Tensor, n: int, shape: torch.Size) -> Leaf:
    """The weight's gradient from all patches of a problem: those of all its examples, which may be several."""
    examples, (positions, fan_in), fan_out = len(a) // n, a.shape[1:], d.shape[2]
    if examples > 1 and fan_in * fan_out <= positions * (fan_in + fan_out):  # added, they are less than a copy
        return Dense(formed(a, d).unflatten(0, (n, -1)).sum(1).reshape(-1, *shape))
    if examples > 1:
        a, d = (t.unflatten(0, (n, -1)).flatten(1, 2) for t in (a, d))
    return _weight(a, d, shape)


def _affine(
    normalised: Tensor, d: Tensor, n: int, bias: bool, shape: torch.Size, channels_last: bool
) -> dict[str, Leaf]:
    """The gradient of ``w ⊙ x̂ + b``: sums of ``d ⊙ x̂`` and of d over examples and places."""

    def total(t: Tensor) -> Tensor:
        t = t.unflatten(0, (n, -1))
        if channels_last:
            return t.flatten(1, t.dim() - len(shape) - 1).sum(1)
        return t.sum([1, *range(3, t.dim())])

    leaves: dict[str, Leaf] = {"weight": Dense(total(d * normalised))}
    if bias:
        leaves["bias"] = Dense(total(d))
    return leaves


def _batch_norm(module: nn.BatchNorm2d, a: Tensor, d: Tensor, n: int) -> dict[str, Leaf]:
    normalised = nn.functional.batch_norm(a, module.running_mean, module.running_var, eps=module.eps)
    return _affine(normalised, d, n, module.bias is not None, module.weight.shape, channels_last=False)


def _measuring(module: Measuring, normalised: Tensor, d: Tensor, n: int) -> dict[str, Leaf]:
    return _affine(normalised, d, n, module.bias is not None, module.weight.shape, channels_last=False)


def _group_norm(module: nn.GroupNorm, a: Tensor, d: Tensor, n: int) -> dict[str, Leaf]:
    normalised = nn.functional.group_norm(a, module.num_groups, eps=module.eps)
    return _affine(normalised, d, n, module.bias is not None, module.weight.shape, channels_last=False)


def _layer_norm(module: nn.LayerNorm, a: Tensor, d: Tensor, n: int) -> dict[str, Leaf]:
    normalised = nn.functional.layer_norm(a, module.normalized_shape, eps=module.eps)
    return _affine(normalised, d, n, module.bias is not None, module.weight.shape, channels_last=True)


_RULES: dict[type[nn.Module], Callable[..., dict[str, Leaf]]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    Measuring: _measuring,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
