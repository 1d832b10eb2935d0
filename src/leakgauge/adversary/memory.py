"""How much memory a problem takes, so that as many run at once as the budget holds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.task import Task


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
