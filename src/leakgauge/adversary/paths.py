"""Paths: how the updates of N candidates are computed.

``loop`` calls the client once per candidate and is the oracle; ``vmap`` maps the client over candidates;
``ghost`` (:mod:`leakgauge.adversary.ghost`) runs one ordinary batched pass and forms no update at all.
All three return a :class:`leakgauge.updates.Batch` that is differentiable in the candidate.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from leakgauge.batch_norm import Measuring
from leakgauge.errors import ModelError, PathError, nearest
from leakgauge.task import Task
from leakgauge.types import Candidate, Tree
from leakgauge.updates import Batch, Examples, Sharing, stacked
from leakgauge.updates.trees import over

if TYPE_CHECKING:
    from leakgauge.adversary.ghost import Ghost

PathName = Literal["auto", "ghost", "vmap", "loop"]
VMAP_ENTRIES = 4_000_000
"""Materialised entries of one vmapped chunk: beyond the cache, vmap gets slower with every candidate."""


class Path(Protocol):
    """Updates of candidates ``[N, B, …]`` at fixed parameters."""

    name: ClassVar[str]

    def updates(self, candidate: Candidate, sharing: Sharing) -> Batch: ...


@dataclass(frozen=True)
class Loop:
    """The client, one candidate at a time: the oracle that the others must equal."""

    task: Task
    params: Tree
    buffers: Tree
    name: ClassVar[str] = "loop"

    def updates(self, candidate: Candidate, sharing: Sharing) -> Batch:
        client = _client(self.task, self.params, self.buffers)
        updates = [
            client(x, y, {address: over(itemgetter(n), value) for address, value in candidate.nuisances.items()})
            for n, (x, y) in enumerate(zip(candidate.inputs, candidate.labels, strict=True))
        ]
        return replace(Batch.of(stacked(updates), sharing.counts), examples=examples_of(self, candidate, sharing))


@dataclass(frozen=True)
class Vmap:
    """The client, mapped over candidates in chunks; every update is materialised. Takes any recipe."""

    task: Task
    params: Tree
    buffers: Tree
    name: ClassVar[str] = "vmap"

    @cached_property
    def model(self) -> nn.Module:
        return _affine_apart(self.task.working)

    def updates(self, candidate: Candidate, sharing: Sharing) -> Batch:
        entries = sum(p.numel() for p in self.params.values())
        chunk = max(1, VMAP_ENTRIES // entries)
        client = _client(self.task, self.params, self.buffers, self.model)
        arguments = candidate.inputs, candidate.labels, dict(candidate.nuisances)
        batch = Batch.of(vmap(client, chunk_size=chunk)(*arguments), sharing.counts)
        return replace(batch, examples=examples_of(self, candidate, sharing))


def examples_of(path: Loop | Vmap | Ghost, candidate: Candidate, sharing: Sharing) -> Examples | None:
    """The examples of candidates ``[N, B, …]`` as N·B candidates of one example each; None where they are that."""
    count, recipe = candidate.inputs.shape[1], path.task.recipe
    if count == 1:
        return None

    def alone() -> Batch:
        hidden = {
            address: over(partial(_alone, path.task, address, count), value)
            for address, value in candidate.nuisances.items()
        }
        inputs, labels = (t.flatten(0, 1).unsqueeze(1) for t in (candidate.inputs, candidate.labels))
        return path.updates(Candidate(inputs, labels, hidden), Sharing(tuple(count * n for n in sharing.counts)))

    return Examples(alone, count, 1 / count if recipe.reduction == "mean" else 1.0)


def _alone(task: Task, address: str, count: int, value: Tensor) -> Tensor:
    """A nuisance of N candidates as one of N·B examples: its own row, or for a rate the candidate's."""
    if task.nuisances[address].per == "example":
        return value.flatten(0, 1).unsqueeze(1)
    return value.repeat_interleave(count, 0)


def _client(
    task: Task, params: Tree, buffers: Tree, model: nn.Module | None = None
) -> Callable[..., dict[str, Tensor]]:
    return lambda x, y, nuisances: task.client(params, x, y, nuisances, buffers=buffers, model=model)


def _affine_apart(model: nn.Module) -> nn.Module:
    """A copy whose norms scale and shift by themselves, sharing the tensors.

    vmap takes the statistics inside torch's gradient of a norm's weight for constants: values are right, but what
    is differentiated a second time is not. Normalising without a weight and multiplying afterwards is exact.
    """
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    own = copy.deepcopy(model, shared)
    for module in own.modules():
        if _measures_and_scales(module):
            module.forward = partial(_normalise_then_scale, module)  # type: ignore[arg-type]
    return own


def _measures_and_scales(module: nn.Module) -> bool:
    if isinstance(module, Measuring):
        return False  # it does so by itself
    if isinstance(module, _BatchNorm | _InstanceNorm):
        return module.weight is not None and (module.training or module.running_mean is None)
    return isinstance(module, nn.LayerNorm) and module.weight is not None


def _normalise_then_scale(module: _BatchNorm | _InstanceNorm | nn.LayerNorm, x: Tensor) -> Tensor:
    if isinstance(module, nn.LayerNorm):
        normalised = nn.functional.layer_norm(x, module.normalized_shape, eps=module.eps) * module.weight
        return normalised if module.bias is None else normalised + module.bias
    if isinstance(module, _InstanceNorm):
        normalised = nn.functional.instance_norm(x, eps=module.eps)
    else:
        normalised = nn.functional.batch_norm(x, None, None, training=True, eps=module.eps)
    weight, bias = (t.view(-1, *[1] * (x.dim() - 2)) for t in (module.weight, module.bias))
    return normalised * weight + bias


def choose(
    task: Task,
    params: Tree,
    buffers: Tree,
    name: PathName,
    objective: Callable[[Batch, Candidate], Tensor],
    candidate: Candidate,
) -> Path:
    """The fastest path that fits the model and equals the plain gradient at ``candidate``.

    ``objective`` maps the updates of candidates of one observation to their values; its gradient with respect to
    the inputs is compared with the loop's, at ``candidate`` and a second one beside it: a path must not let
    neighbours mix. A path asked for by name must fit; ``auto`` goes on to the next one.
    """
    from leakgauge.adversary.ghost import Ghost, unsupported  # ghost is itself a path

    if name not in get_args(PathName):
        raise PathError(f"there is no path {name!r}", where="path", remedy=nearest(name, get_args(PathName)))
    if name == "loop":
        return Loop(task, params, buffers)
    reason = unsupported(task)
    tried: list[Path] = []
    if name in ("auto", "ghost") and reason is None:
        tried.append(Ghost.of(task, params, buffers))
    if name == "ghost" and reason is not None:
        raise PathError(reason, where="ghost path", remedy='use path="vmap" or "auto"')
    if name in ("auto", "vmap"):
        tried.append(Vmap(task, params, buffers))
    pair = _with_neighbour(candidate)
    try:
        plain = _slope(Loop(task, params, buffers), objective, pair)
    except RuntimeError as raised:
        raise ModelError(
            f"its update cannot be differentiated ({raised})",
            where="model",
            remedy="replace the layer that has no second derivative",
        ) from raised
    for path in tried:
        try:
            fault = _mismatch(_slope(path, objective, pair), plain)
        except Exception as raised:  # a model may do anything with its layers; the loop has shown that it runs
            fault = f"it raised {type(raised).__name__}: {raised}"
        if fault is None:
            return path
        if name != "auto":
            raise PathError(f"{fault}", where=f"{path.name} path", remedy='use path="loop" for this model')
    return Loop(task, params, buffers)


def _with_neighbour(candidate: Candidate) -> Candidate:
    first = candidate.inputs[:1].detach()
    ramp = torch.linspace(0, 1, first.numel(), dtype=first.dtype, device=first.device).view_as(first)
    hidden = {
        address: over(lambda v: v[:1].repeat_interleave(2, 0), value) for address, value in candidate.nuisances.items()
    }
    return Candidate(torch.cat([first, (first + ramp) / 2]), candidate.labels[:1].repeat_interleave(2, 0), hidden)


def _slope(path: Path, objective: Callable[[Batch, Candidate], Tensor], candidate: Candidate) -> Tensor:
    inputs = candidate.inputs.detach().requires_grad_()
    live = replace(candidate, inputs=inputs)
    value = objective(path.updates(live, Sharing((len(inputs),))), live)
    (slope,) = torch.autograd.grad(value.sum(), inputs)
    return slope


def _mismatch(fast: Tensor, plain: Tensor) -> str | None:
    tolerance = 1e-7 if plain.dtype == torch.float64 else 2e-3
    gap = float((fast - plain).norm() / plain.norm().clamp(min=torch.finfo(plain.dtype).tiny))
    if gap <= tolerance:
        return None
    return f"its gradient differs from the plain one by {gap:.1e} (relative; at most {tolerance:.0e} is accepted)"
