"""Batch norm as a nuisance: layers that measure their batch, or use statistics that somebody gives them.

A client in train mode normalises by the mean and the (biased) variance of its own batch, and moves its running
statistics toward them: ``running ← (1 − m)·running + m·(mean, n/(n − 1)·variance)``, n the numbers per channel. Whoever
sees the running statistics before and after one step knows those of the batch. Nothing here writes a user's buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.errors import ModelError
from leakgauge.types import Tree

MEAN, VARIANCE = "mean", "variance"
RUNNING_MEAN, RUNNING_VARIANCE = "running_mean", "running_var"


class Measuring(_BatchNorm):
    """``x ↦ w·(x − m)/√(v + ε) + b`` with m and v of the batch, or those that the buffers ``mean``, ``variance`` hold.

    Scale and shift are applied apart from the normalisation: vmap takes the statistics inside torch's gradient of a
    norm's weight for constants, which is wrong once that gradient is differentiated. With ``problems = N`` the rows are
    N batches one after another, each normalised by itself, or by its row of statistics ``[N, C]``; ``last`` then holds
    what was measured. ``running`` and ``tracked`` are what the user's layer held when it was copied. A layer that is
    called twice in a pass counts by its last call.
    """

    mean: Tensor | None
    variance: Tensor | None

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__(layer.num_features, layer.eps, layer.momentum, affine=False, track_running_stats=False)
        self.affine, self.weight, self.bias = layer.affine, layer.weight, layer.bias
        held = layer.running_mean, layer.running_var
        self.running = None if held[0] is None or held[1] is None else (held[0], held[1])
        self.tracked = 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
        self.positions = 1
        self.problems: int | None = None
        self.last: tuple[Tensor, Tensor] | None = None
        self.register_buffer(MEAN, None, persistent=False)
        self.register_buffer(VARIANCE, None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(self.normalised(x))

    def normalised(self, x: Tensor) -> Tensor:
        """``(x − m)/√(v + ε)``."""
        self.positions = x[0, 0].numel()
        fixed = self.mean is not None and self.variance is not None
        if self.problems is not None:
            return self._within(x.unflatten(0, (self.problems, -1)), fixed=fixed).flatten(0, 1)
        if not fixed:
            if len(x) * self.positions == 1:
                what = f"one example gives each of the {self.num_features} channels one value, which has no variance"
                raise ModelError(what, where="batch norm in train mode", remedy='train on batches, or say mode="eval"')
            return nn.functional.batch_norm(x, None, None, training=True, eps=self.eps)
        assert self.mean is not None
        assert self.variance is not None
        return (x - along(self.mean, x, 1)) * (along(self.variance, x, 1) + self.eps).rsqrt()

    def _within(self, x: Tensor, *, fixed: bool) -> Tensor:
        """Batches ``[N, B, C, …]``, each by itself."""
        normalised, mean, variance = _normalised(x, self.eps)
        self.last = mean.flatten(1), variance.flatten(1)
        if not fixed:
            return normalised
        assert self.mean is not None
        assert self.variance is not None
        spread = along(self.variance.unsqueeze(1), x, 2) + self.eps
        return (x - along(self.mean.unsqueeze(1), x, 2)) * spread.rsqrt()

    def scaled(self, normalised: Tensor) -> Tensor:
        if self.weight is None:
            return normalised
        return torch.addcmul(along(self.bias, normalised, 1), normalised, along(self.weight, normalised, 1))

    def rate(self, step: int) -> float:
        """How far one batch moves the running statistics; without a momentum they are a plain average."""
        return 1 / (self.tracked + step + 1) if self.momentum is None else self.momentum


def _mean(x: Tensor) -> Tensor:
    """Over everything but problem and channel of ``[N, B, C, …]``."""
    return x.mean([1, *range(3, x.dim())], keepdim=True)


class _Normalised(torch.autograd.Function):
    """``y = (x − m) r`` with ``r = (v + ε)^(−½)``, m and v of every batch ``[N, B, C, …]``: y, m and v.

    Attacks differentiate a gradient, and are bound by passes over memory: written out, these have a third of those of
    the elementary operations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        mean = _mean(x)
        centred = x - mean
        variance = _mean(centred.square())
        normalised = centred.mul_((variance + eps).rsqrt())
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(normalised, variance)
        return normalised, mean, variance

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, None]:
        """``r (g − ⟨g⟩ − y ⟨g y⟩) + g_m / n + 2 g_v (x − m) / n``, ⟨·⟩ the mean over a batch of n numbers."""
        y, variance = ctx.saved_tensors
        slope, of_mean, of_variance = slopes
        count = y[:, :, 0].numel() // len(y)
        total = None if slope is None else _differentiated(slope, y, (variance + ctx.eps).rsqrt())
        if of_variance is not None:
            own = y * (of_variance * (variance + ctx.eps).sqrt() * (2 / count))
            total = own if total is None else total + own
        if of_mean is not None:
            own = (of_mean / count).expand_as(y)
            total = own if total is None else total + own
        return total, None


class _Slope(torch.autograd.Function):
    """``d = r (g − ⟨g⟩ − y ⟨g y⟩)``, which is linear and symmetric in g."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, y: Tensor, r: Tensor) -> Tensor:
        along_y = _mean(g * y)
        slope = _slope(g, y, r, along_y)
        ctx.save_for_backward(g, y, r, along_y, slope)
        return slope

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``r (h − ⟨h⟩ − y ⟨h y⟩)``, ``−r (h ⟨g y⟩ + g ⟨h y⟩)`` and ``Σ h d / r``."""
        g, y, r, along_y, slope = ctx.saved_tensors
        mine = _mean(h * y)
        of_y = (h * (-r * along_y)).addcmul_(g, -r * mine)
        count = h[:, :, 0].numel() // len(h)
        return _slope(h, y, r, mine), of_y, _mean(h * slope) * count / r


def _slope(g: Tensor, y: Tensor, r: Tensor, along_y: Tensor) -> Tensor:
    return torch.addcmul(-r * _mean(g), g, r).addcmul_(y, -r * along_y)


# torch does not annotate apply
_normalised: Callable[[Tensor, float], tuple[Tensor, Tensor, Tensor]] = _Normalised.apply
_differentiated: Callable[[Tensor, Tensor, Tensor], Tensor] = _Slope.apply


def along(values: Tensor, x: Tensor, axis: int) -> Tensor:
    """Numbers per channel ``[…, C]``, shaped to meet x, whose channels are its axis ``axis``."""
    return values.reshape(*values.shape, *[1] * (x.dim() - axis - 1))


def measuring(model: nn.Module) -> nn.Module:
    """The model with every batch norm in train mode replaced, in place; ``model`` must be a copy of one's own.

    A layer with a forward of its own keeps it, without running statistics to write: nobody can give it others.
    """
    replaced: dict[int, Measuring] = {}
    for module in list(model.modules()):
        for local, layer in list(module._modules.items()):  # named_children() skips a layer used twice
            if not isinstance(layer, _BatchNorm) or isinstance(layer, Measuring) or not layer.training:
                continue
            if type(layer).forward is _BatchNorm.forward:
                setattr(module, local, replaced.setdefault(id(layer), Measuring(layer)))
            else:
                layer.track_running_stats = False
                layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    return model


def layers(model: nn.Module) -> dict[str, Measuring]:
    """The measuring layers of a working copy, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Measuring)}


def moments(x: Tensor, batch: int = 0) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance per channel of ``[…, B, C, …]``, where B is the axis ``batch``."""
    places = [batch, *range(batch + 2, x.dim())]
    return x.mean(places), x.var(places, correction=0)


def measured(model: nn.Module, params: Tree, buffers: Tree, inputs: Tensor) -> dict[str, Tensor]:
    """The statistics of one batch in every measuring layer, ``<layer>.mean`` and ``<layer>.variance``, ``[C]`` each."""
    statistics: dict[str, Tensor] = {}

    def note(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            statistics[f"{name}.{MEAN}"], statistics[f"{name}.{VARIANCE}"] = moments(args[0])

        return hook

    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in layers(model).items()]
    try:
        with torch.no_grad():
            functional_call(model, ({**params}, {**buffers}), (inputs,))
    finally:
        for hook in hooks:
            hook.remove()
    return statistics


def running(model: nn.Module, state: Tree, examples: int) -> dict[str, Tensor] | None:
    """The running statistics in the form of :func:`measured`; None where a layer keeps none.

    ``state`` may hold them under their state-dict names, as a capture does. Running variances are unbiased: that of a
    batch of n numbers per channel is ``(n − 1)/n`` of them.
    """
    statistics: dict[str, Tensor] = {}
    for name, layer in layers(model).items():
        before = _before(name, layer, state)
        if before is None:
            return None
        statistics[f"{name}.{MEAN}"], statistics[f"{name}.{VARIANCE}"] = before[0], before[1] * _biased(layer, examples)
    return statistics


def moved(model: nn.Module, state: Tree, statistics: Tree, examples: int) -> dict[str, Tensor]:
    """The running statistics after local steps with these batch statistics ``[steps, C]``, by state-dict names."""
    after: dict[str, Tensor] = {}
    for name, layer in layers(model).items():
        before = _before(name, layer, state)
        if before is None:
            continue
        mean, variance = before
        for step, (m, v) in enumerate(zip(statistics[f"{name}.{MEAN}"], statistics[f"{name}.{VARIANCE}"], strict=True)):
            mean = torch.lerp(mean, m.to(mean), layer.rate(step))
            variance = torch.lerp(variance, v.to(variance) / _biased(layer, examples), layer.rate(step))
        after[f"{name}.{RUNNING_MEAN}"], after[f"{name}.{RUNNING_VARIANCE}"] = mean, variance
    return after


def read_off(model: nn.Module, state: Tree, sent: Tree, examples: int) -> dict[str, Tensor] | None:
    """The statistics of the one batch that moved the running ones from ``state`` to ``sent``; None where some miss."""
    statistics: dict[str, Tensor] = {}
    for name, layer in layers(model).items():
        before, rate = _before(name, layer, state), layer.rate(0)
        after = sent.get(f"{name}.{RUNNING_MEAN}"), sent.get(f"{name}.{RUNNING_VARIANCE}")
        if before is None or after[0] is None or after[1] is None or not rate:
            return None
        statistics[f"{name}.{MEAN}"] = before[0] + (after[0].to(before[0]) - before[0]) / rate
        unbiased = before[1] + (after[1].to(before[1]) - before[1]) / rate
        statistics[f"{name}.{VARIANCE}"] = unbiased.clamp(min=0) * _biased(layer, examples)
    return statistics


def pooled(statistics: Tree, step_axis: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and variance by layer over all steps together: those of equally large batches joined."""
    joined: dict[str, tuple[Tensor, Tensor]] = {}
    for key, mean in statistics.items():
        name, _, what = key.rpartition(".")
        if what == MEAN:
            variance = statistics[f"{name}.{VARIANCE}"]
            between = mean.var(step_axis, correction=0)
            joined[name] = mean.mean(step_axis), variance.mean(step_axis) + between
    return joined


def expected_in_eval(modules: Mapping[str, nn.Module], features: Tree) -> dict[str, tuple[Tensor, Tensor]]:
    """The running statistics of norms in eval mode, as biased ones of as many numbers as ``features [N, B, C, …]``."""
    expected: dict[str, tuple[Tensor, Tensor]] = {}
    for name, module in modules.items():
        if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
            count = features[name].numel() // (len(features[name]) * module.num_features)
            expected[name] = module.running_mean, module.running_var * ((count - 1) / count)
    return expected


def _before(name: str, layer: Measuring, state: Tree) -> tuple[Tensor, Tensor] | None:
    mean, variance = state.get(f"{name}.{RUNNING_MEAN}"), state.get(f"{name}.{RUNNING_VARIANCE}")
    return layer.running if mean is None or variance is None else (mean, variance)


def _biased(layer: Measuring, examples: int) -> float:
    """``(n − 1)/n`` of n numbers per channel; a single one has no unbiased variance."""
    count = layer.positions * examples
    return (count - 1) / count if count > 1 else 1.0
