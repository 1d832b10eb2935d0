"""Paths: how the updates of N candidates are computed.

``loop`` calls the client once per candidate and is the oracle; ``vmap`` maps the client over candidates;
``ghost`` (:mod:`leakgauge.adversary.ghost`) runs one ordinary batched pass and forms no update at all.
All three return a :class:`leakgauge.tree.Batch` that is differentiable in the candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.func import vmap

from leakgauge import tree
from leakgauge.client import update_of
from leakgauge.errors import PathError
from leakgauge.task import Task
from leakgauge.tree import Batch, Sharing
from leakgauge.types import Candidate, Tree

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
    name: ClassVar[str] = "loop"

    def updates(self, candidate: Candidate, sharing: Sharing) -> Batch:
        client = _client(self.task, self.params)
        made = [client(x, y) for x, y in zip(candidate.inputs, candidate.labels, strict=True)]
        return Batch.of(tree.stacked(made), sharing.counts)


@dataclass(frozen=True)
class Vmap:
    """The client, mapped over candidates in chunks; every update is materialised. Takes any recipe."""

    task: Task
    params: Tree
    name: ClassVar[str] = "vmap"

    def updates(self, candidate: Candidate, sharing: Sharing) -> Batch:
        entries = sum(p.numel() for p in self.params.values())
        chunk = max(1, VMAP_ENTRIES // entries)
        made = vmap(_client(self.task, self.params), chunk_size=chunk)(candidate.inputs, candidate.labels)
        return Batch.of(made, sharing.counts)


def _client(task: Task, params: Tree) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    buffers = task.buffers
    return lambda x, y: update_of(task.working, params, buffers, x, y, task.recipe)


def choose(
    task: Task, params: Tree, name: PathName, objective: Callable[[Batch, Candidate], Tensor], candidate: Candidate
) -> Path:
    """The fastest path that fits the model and equals the plain gradient at ``candidate``.

    ``objective`` maps the updates of one candidate to its value; its gradient with respect to the inputs is
    compared with the loop's. A path asked for by name must fit; ``auto`` goes on to the next one.
    """
    from leakgauge.adversary.ghost import Ghost, unsupported  # ghost is itself a path

    if name == "loop":
        return Loop(task, params)
    reason = unsupported(task)
    tried: list[Path] = []
    if name in ("auto", "ghost") and reason is None:
        tried.append(Ghost.of(task, params))
    if name == "ghost" and reason is not None:
        raise PathError(reason, where="ghost path", remedy='use path="vmap" or "auto"')
    if name in ("auto", "vmap"):
        tried.append(Vmap(task, params))
    plain = _slope(Loop(task, params), objective, candidate)
    for path in tried:
        try:
            fault = _mismatch(_slope(path, objective, candidate), plain)
        except (RuntimeError, PathError) as raised:
            fault = f"it raised {type(raised).__name__}: {raised}"
        if fault is None:
            return path
        if name != "auto":
            raise PathError(f"{fault}", where=f"{path.name} path", remedy='use path="loop" for this model')
    return Loop(task, params)


def _slope(path: Path, objective: Callable[[Batch, Candidate], Tensor], candidate: Candidate) -> Tensor:
    inputs = candidate.inputs.detach().requires_grad_()
    live = Candidate(inputs, candidate.labels)
    value = objective(path.updates(live, Sharing((1,) * len(inputs))), live)
    (slope,) = torch.autograd.grad(value.sum(), inputs)
    return slope


def _mismatch(fast: Tensor, plain: Tensor) -> str | None:
    tolerance = 1e-7 if plain.dtype == torch.float64 else 2e-3
    gap = float((fast - plain).norm() / plain.norm().clamp(min=torch.finfo(plain.dtype).tiny))
    if gap <= tolerance:
        return None
    return f"its gradient differs from the plain one by {gap:.1e} (relative; at most {tolerance:.0e} is accepted)"
