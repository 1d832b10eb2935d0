"""Dropout as a nuisance: layers whose mask is a buffer, so that the client's pass is a pure function of it."""

from __future__ import annotations

from typing import Any

from torch import Generator, Tensor, nn, ones
from torch.nn.modules.dropout import _DropoutNd

from leakgauge.errors import ModelError
from leakgauge.laws import Bernoulli

MASK = "mask"
WHOLE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Layers that drop whole channels."""


class Masked(nn.Module):
    """``x ↦ mask ⊙ x``; without a mask of one's own it is the mean, 1."""

    mask: Tensor

    def __init__(self, p: float, *, whole: bool) -> None:
        super().__init__()
        self.law, self.whole = Bernoulli(p, value=1 / (1 - p)), whole
        self.shape: tuple[int, ...] | None = None
        self.register_buffer(MASK, ones(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.shape = tuple(x.shape[1:2]) + (1,) * (x.dim() - 2) if self.whole else tuple(x.shape[1:])
        return x * self.mask


def masked(model: nn.Module) -> nn.Module:
    """The model with every active dropout layer replaced, in place; ``model`` must be a copy of one's own."""
    for name, module in list(model.named_modules()):
        for local, layer in list(module._modules.items()):  # named_children() skips a layer used twice
            if not isinstance(layer, _DropoutNd) or not layer.training or layer.p == 0:
                continue
            place = f"{name}.{local}".lstrip(".")
            if layer.p >= 1 or isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
                raise ModelError(
                    f"layer {place!r}, a {type(layer).__name__} with p={layer.p:g}, is not modelled in train mode",
                    where="Task",
                    remedy='set mode="eval" in the recipe, or use nn.Dropout with p below 1',
                )
            setattr(module, local, Masked(layer.p, whole=isinstance(layer, WHOLE)))
    return model


class Calls:
    """Counts how often each masked layer is called in a pass: one mask serves one call."""

    def __init__(self, model: nn.Module) -> None:
        self.layers, self.counts, self.hooks = layers(model), dict[str, int](), list[Any]()

    def __enter__(self) -> Calls:
        for name, layer in self.layers.items():
            self.hooks.append(layer.register_forward_hook(lambda *_, name=name: self._count(name)))
        return self

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def refuse_repeated(self) -> None:
        for name, count in self.counts.items():
            if count > 1:
                raise ModelError(
                    f"dropout layer {name!r} is called {count} times in one pass, each with a mask of its own",
                    where="Task",
                    remedy='give every call a layer of its own, or set mode="eval" in the recipe',
                )


def layers(model: nn.Module) -> dict[str, Masked]:
    """The masked layers of a working copy, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Masked)}


def draw(model: nn.Module, batch: int, steps: int, *, generator: Generator) -> dict[str, Tensor]:
    """A mask for every layer: ``[batch, …]``, or ``[batch, steps, …]`` of several local steps."""
    times = () if steps == 1 else (steps,)
    return {
        name: layer.law.sample((batch, *times, *(layer.shape or ())), generator=generator)
        for name, layer in layers(model).items()
    }
