"""The laws of every part: it reads back, draws from its own generator, changes nothing, and has an honest neutral."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.defenses import UpdatePart
from leakgauge.expr import parse
from leakgauge.task import Task
from leakgauge.types import Tree


def repr_round_trips(part: Any) -> None:
    """``parse(repr(part)) == part``, with the same type, hash and text."""
    text = repr(part)
    read = parse(text)
    assert type(read) is type(part), f"{text} reads back as a {type(read).__name__}, not a {type(part).__name__}"
    assert read == part, f"{text} reads back as {read!r}, which is not equal"
    assert repr(read) == text, f"{text} reads back as {read!r}"
    if type(part).__hash__ is not None and _hashable(part):
        assert hash(read) == hash(part), f"{text}: equal parts have different hashes"


def release_is_pure(part: UpdatePart, *, seed: int = 1) -> None:
    """A release is a function of update and generator: same seed, same release; nothing else is read or written.

    The update keeps its values, the observed update has its names, shapes and dtype (float32 and float64), and the
    global generator is neither used nor moved.
    """
    for dtype in (torch.float64, torch.float32):
        update = example_update(dtype=dtype, seed=seed)
        copies = {name: value.clone() for name, value in update.items()}
        state = torch.get_rng_state()
        context = ExampleContext(update)
        releases = [part.release(update, context, generator=torch.Generator().manual_seed(seed)) for _ in range(2)]
        assert torch.equal(torch.get_rng_state(), state), f"{part!r} draws from the global generator"
        for name, value in update.items():
            assert torch.equal(value, copies[name]), f"{part!r} writes into the update ({name!r})"
        first, second = (out.observed for out in releases)
        assert list(first) == list(update), f"{part!r} lets {list(first)} out of an update with {list(update)}"
        for name, value in first.items():
            assert value.shape == update[name].shape, f"{part!r} changes the shape of {name!r} to {tuple(value.shape)}"
            assert value.dtype == dtype, f"{part!r} changes the dtype of {name!r} to {value.dtype}"
            assert torch.equal(value, second[name]), f"{part!r} lets out two things for one seed ({name!r})"
        for out in releases:
            declared = {nuisance.name for nuisance in part.nuisances}
            assert set(out.drawn) <= declared, f"{part!r} draws {sorted(out.drawn)}, but declares {sorted(declared)}"


def neutral_is_identity(part: type[UpdatePart] | UpdatePart, *, seed: int = 1) -> bool:
    """``neutral()``, where it exists, lets every update out as it is, bit for bit. Returns whether it exists."""
    neutral = part.neutral()
    if neutral is None:
        return False
    for scale in (0.0, 1e-6, 1.0, 1e6):
        update = {name: scale * value for name, value in example_update(dtype=torch.float32, seed=seed).items()}
        out = neutral.release(update, None, generator=torch.Generator().manual_seed(seed))
        for name, value in update.items():
            assert torch.equal(out.observed[name], value), f"{neutral!r} is not neutral: it changes {name!r}"
    return True


def task_is_untouched(task_or_model: Task | nn.Module, action: Callable[[], object]) -> None:
    """``action`` leaves the user's model as it was: parameters, buffers, gradients, train flags, hooks.

    Values are compared, and the tensors' version counters too, so that a write of the same value is seen as well.
    """
    model = task_or_model.model if isinstance(task_or_model, Task) else task_or_model
    before = _state(model)
    action()
    after = _state(model)
    assert list(before) == list(after), f"the model now has {sorted(set(before) ^ set(after))}, or has lost it"
    for name, value in before.items():
        now = after[name]
        same = torch.equal(value, now) if isinstance(value, Tensor) and isinstance(now, Tensor) else value == now
        assert same, f"{name} was changed"


def example_update(*, dtype: torch.dtype = torch.float64, seed: int = 1) -> dict[str, Tensor]:
    """A small update with two layers, a zero entry and a tie."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"first.weight": (4, 3), "first.bias": (4,), "last.weight": (2, 4, 1, 1), "last.bias": (2,)}
    update = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    update["first.weight"][0, 0] = 0.0
    update["first.weight"][1, :2] = 0.5
    return {name: value.to(dtype) for name, value in update.items()}


@dataclass(frozen=True)
class ExampleContext:
    """The client's known of :func:`example_update`: two examples, whose updates have it as their mean.

    Every layer's input has three features, a smooth map of the examples' four inputs; the last one is dead.
    """

    update: Tree

    def inputs(self) -> Tensor:
        like = next(iter(self.update.values()))
        return torch.linspace(-1, 1, 8, dtype=like.dtype).view(2, 4)

    def per_example(self) -> dict[str, Tensor]:
        return {name: torch.stack([u + 0.25, u - 0.25]) for name, u in self.update.items()}

    def combined(self, each: Tree) -> dict[str, Tensor]:
        return {name: u.mean(0) for name, u in each.items()}

    def representation(self, layer: str) -> Tensor:
        return self.representation_of(layer)(self.inputs())

    def representation_of(self, layer: str) -> Callable[[Tensor], Tensor]:
        def run(inputs: Tensor) -> Tensor:
            first, second = inputs.square().sum(1), (inputs[:, 0] - 2 * inputs[:, 3]).sigmoid()
            return torch.stack([first, second, 0 * first], 1)

        return run


def _state(model: nn.Module) -> dict[str, object]:
    state: dict[str, object] = {}
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        state[name] = value.detach().clone()
        state[f"{name} (identity)"] = id(value)
        state[f"{name} (version)"] = value._version
        state[f"{name} (requires_grad)"] = value.requires_grad
        state[f"{name} (gradient)"] = copy.deepcopy(value.grad)
    for name, module in model.named_modules():
        hooks = len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        state[f"module {name!r}"] = (type(module), module.training, getattr(module, "inplace", None), hooks)
    return state


def _hashable(part: Any) -> bool:
    try:
        hash(part)
    except TypeError:  # a mapping among its arguments
        return False
    return True
