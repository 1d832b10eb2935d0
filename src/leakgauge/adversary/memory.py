"""How much memory a problem takes, so that as many run at once as the budget holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from leakgauge.task import Task

SMALLER = 4
"""By how much a chunk shrinks when memory ran out."""
_share: ContextVar[int] = ContextVar("_share", default=1)


@contextmanager
def smaller_chunks() -> Iterator[None]:
    """Run a quarter of the problems at once: a second try of what ran out of memory. Numbers change by rounding."""
    token = _share.set(_share.get() * SMALLER)
    try:
        yield
    finally:
        _share.reset(token)


def at_once(problems: int) -> int:
    """The most of so many problems that may run at once, whatever the budget says."""
    return -(-problems // _share.get())


def out_of_memory(fault: BaseException) -> bool:
    """Whether memory ran out: of Python, of a device, or, as a plain RuntimeError, of torch on the processor."""
    if isinstance(fault, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(fault, RuntimeError) and ("t allocate memory" in str(fault) or "not enough memory" in str(fault))


def bytes_per_problem(task: Task, batch: int, points: int, width: int) -> int:
    """One candidate: what its passes leave behind, and a few copies of a (chunk of an) update."""
    entries = sum(p.numel() for p in task.params.values())
    return width * (12 * activations(task) * batch * points + 4 * min(entries, 2**20))


def bytes_per_observation(task: Task, rounds: int, width: int) -> int:
    """The observed updates of all rounds."""
    return width * sum(p.numel() for p in task.params.values()) * rounds


def activations(task: Task) -> int:
    """The numbers that one forward pass of one example leaves behind."""
    total = 0

    def count(_: nn.Module, __: object, output: object) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel() // max(1, len(output))

    hooks = [module.register_forward_hook(count) for module in task.working.modules() if not list(module.children())]
    try:
        first = next(iter(task.params.values()))
        with torch.no_grad():
            task.working(torch.zeros(2, *task.domain.shape, dtype=first.dtype, device=first.device))
    finally:
        for hook in hooks:
            hook.remove()
    return total + task.domain.size
