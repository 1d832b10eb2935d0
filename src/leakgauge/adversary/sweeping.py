"""What the settings of one sweep may differ in."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from torch import Tensor

from leakgauge.adversary.adversary import Adversary
from leakgauge.errors import DomainError


def check_sweep(adversary: Adversary) -> None:
    """Only numbers that act on one problem at a time may differ; the others belong to the whole batch."""
    swept = [f.name for f in fields(adversary) if varies(getattr(adversary, f.name))]
    inner = [f.name for f in fields(adversary.solver) if varies(getattr(adversary.solver, f.name))]  # type: ignore[arg-type]
    wrong = sorted(set(swept) - {"prior", "anneal", "solver"} | set(inner) - adversary.solver.sweepable)
    if wrong:
        raise DomainError(
            f"settings of one sweep differ in {', '.join(wrong)}",
            where="attack",
            remedy=f"attack once for each; a sweep may vary the prior, anneal and of the solver "
            f"{', '.join(sorted(adversary.solver.sweepable)) or 'nothing'}",
        )


def varies(value: object) -> bool:
    """Whether a sweep has left a tensor of numbers in it."""
    if isinstance(value, tuple):
        return any(map(varies, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(varies(getattr(value, f.name)) for f in fields(value))
    return isinstance(value, Tensor)


__all__ = ["check_sweep", "varies"]
