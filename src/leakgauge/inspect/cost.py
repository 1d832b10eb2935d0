"""What an inspection will cost, before it is spent: memory of one candidate, and arithmetic of the whole."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from leakgauge.adversary.adversary import MEMORY
from leakgauge.adversary.memory import bytes_per_problem
from leakgauge.errors import DomainError
from leakgauge.inspect.attacks import Attack
from leakgauge.task import Task

WORK = 1e15
"""Floating-point operations that an inspection may take: about a day of one core."""

PASSES = 9
"""An evaluation differentiates a gradient: about nine times the arithmetic of a forward pass."""


def refuse_costs(task: Task, attacks: Sequence[Attack], batch: int, *, problems: int) -> None:
    """Refuse what needs more memory or arithmetic than an inspection may take, and say what would fit."""
    width = next(iter(task.params.values())).element_size()
    fixed, one = (bytes_per_problem(task, size, 1, width) for size in (0, 1))
    need = fixed + batch * (one - fixed)
    if need > MEMORY:
        most = max(1, (MEMORY - fixed) // max(1, one - fixed))
        raise DomainError(
            f"a candidate of {batch:,} examples takes about {need / 1e9:,.0f} GB, the limit is {MEMORY / 1e9:,.0f} GB",
            where="--batch",
            remedy=f"assume at most {most:,} examples" if fixed < MEMORY else "inspect a smaller model",
        )
    each = PASSES * _operations(task) * problems * sum(map(evaluations, attacks))
    if each * batch > WORK:
        most = int(WORK // each)
        raise DomainError(
            f"attacking {problems:,} updates of {batch:,} examples takes about {each * batch:.0e} floating-point "
            f"operations, the limit is {WORK:.0e}",
            where="--batch",
            remedy=f"assume at most {most:,} examples, or use fewer --draws"
            if most
            else "use fewer --draws, fewer updates, or a smaller model",
        )


def evaluations(attack: Attack) -> int:
    """At most, per update."""
    solver = getattr(attack, "solver", None)
    return int(getattr(solver or attack, "steps", 1)) * int(getattr(attack, "restarts", 1))


def _operations(task: Task) -> float:
    """Of one forward pass of one example."""
    first = next(iter(task.params.values()))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        task.working(torch.zeros(2, *task.domain.shape, dtype=first.dtype, device=first.device))
    return float(counter.get_total_flops()) / 2
